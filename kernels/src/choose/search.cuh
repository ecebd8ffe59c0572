// Finds the drawn token among the tokens that top-k, top-p and min-p keep;
// `phase.rs` explains the search. Every worker runs it on the same numbers and
// finds the same token. Plain C++, so that a test can run it without a GPU.
#pragma once
#include "../../../amk/cuda/device/ptx.cuh"

#ifndef AMK_LEVELS
#define AMK_LEVELS 8
#endif
#ifndef INFINITY
#define INFINITY __uint_as_float(0x7f800000u)
#endif
constexpr u32 NOBODY = ~0u;

// A place in the ranking. Higher logits come first, then lower tokens. A NaN ranks above nothing.
struct Place {
    float logit;
    u32 token;
};
AMK_DEVICE bool above(Place a, Place b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}
AMK_DEVICE Place higher(Place a, Place b) { return above(a, b) ? a : b; }
AMK_DEVICE bool same(Place a, Place b) { return a.logit == b.logit && a.token == b.token; }

// The filters. `top_k` 0, `top_p` 1 and `min_log` -inf (the logarithm of min-p) disable them.
struct Filter {
    u32 top_k;
    float top_p, min_log, temperature;
};

// The tokens above a level: their number, their probability mass relative to the likeliest token's,
// and the winner of the race among them.
struct Found {
    u32 count;
    float mass, value;
    Place winner;
};
constexpr u32 FOUND_WORDS = 5;

AMK_DEVICE Found nothing_found() { return {0, 0, -INFINITY, {-INFINITY, NOBODY}}; }
AMK_DEVICE void join(Found& a, const Found& b) {
    a.count += b.count, a.mass += b.mass;
    if (b.value > a.value || (b.value == a.value && b.winner.token < a.winner.token))
        a.value = b.value, a.winner = b.winner;
}

struct Search {
    float highest;           // logit
    float least, most;       // bounds of the probability of the first top_k tokens, relative to the
                             // likeliest one's
    Place kept_k, cut_k;     // all above `kept` stay in, all not above `cut` are out: by top-k,
    Place kept_p, cut_p;     // by top-p,
    Place floor;             // by min-p
    Place level[AMK_LEVELS]; // of the next look; level 0 is the candidate, or the floor as long as
                             // there is none
    u32 token;               // the draw, or NOBODY
};

// Sets `count` levels between the tokens kept and the tokens removed.
AMK_DEVICE void spread(Place* level, int count, Place kept, Place cut, float temperature) {
    for (int i = 0; i < count; i++) {
        float down = cut.logit > -INFINITY
                         ? (kept.logit - cut.logit) * (i + 1) / (count + 1)
                         : temperature * 0.5f * exp2f(6.0f * i / (count > 1 ? count - 1 : 1));
        level[i] = {kept.logit - down, 0};
    }
}

// Accepts `candidate` if it is certainly kept, else sets the levels of the next probe.
AMK_DEVICE void settle(Search& s, const Filter& f, Place candidate) {
    const Place cut = higher(higher(s.cut_k, s.cut_p), s.floor), kept = higher(s.kept_k, s.kept_p);
    if (candidate.token != NOBODY && above(candidate, cut) && above(candidate, kept)) {
        s.token = candidate.token;
        return;
    }
    s.level[0] = candidate.token != NOBODY && above(candidate, cut) ? candidate : cut;
    const bool k = above(s.kept_k, s.cut_k), p = above(s.kept_p, s.cut_p);
    const bool both = k && p && !(same(s.kept_k, s.kept_p) && same(s.cut_k, s.cut_p));
    const int of_k = both ? (AMK_LEVELS - 1) * 2 / 3 : k ? AMK_LEVELS - 1 : 0;
    spread(s.level + 1, of_k, s.kept_k, s.cut_k, f.temperature);
    spread(s.level + 1 + of_k, AMK_LEVELS - 1 - of_k, s.kept_p, s.cut_p, f.temperature);
}

// Starts the search: `total` is the probability mass of all tokens relative to the likeliest one's.
AMK_DEVICE void begin(Search& s, const Filter& f, float highest, float total, Place winner) {
    const Place all = {-INFINITY, NOBODY}, none = {highest, 0};
    s.highest = highest, s.token = NOBODY;
    s.least = f.top_k ? 1.0f : total, s.most = total;
    s.kept_k = f.top_k ? none : all, s.kept_p = f.top_p < 1.0f ? none : all;
    s.cut_k = s.cut_p = all;
    s.floor = {highest + f.min_log * f.temperature, NOBODY};
    settle(s, f, winner);
}

// Narrows the search after a probe.
AMK_DEVICE void narrow(Search& s, const Filter& f, const Found* found) {
    const Place before = s.level[0];
    const bool k = f.top_k > 0, p = f.top_p < 1.0f;
    if (k) {
        for (int j = 0; j < AMK_LEVELS; j++) {
            if (found[j].count <= f.top_k && !above(s.level[j], s.kept_k))
                s.kept_k = s.level[j], s.least = fmaxf(s.least, found[j].mass);
            if (found[j].count >= f.top_k && above(s.level[j], s.cut_k))
                s.cut_k = s.level[j], s.most = fminf(s.most, found[j].mass);
        }
        if (before.token != NOBODY && found[0].count < f.top_k)
            s.least =
                fmaxf(s.least, found[0].mass + expf((before.logit - s.highest) / f.temperature));
    }
    for (int j = 0; p && j < AMK_LEVELS; j++) {
        if (found[j].mass <= f.top_p * s.least && !above(s.level[j], s.kept_p))
            s.kept_p = s.level[j];
        if (found[j].mass >= f.top_p * s.most && above(s.level[j], s.cut_p)) s.cut_p = s.level[j];
    }
    const Place cut = higher(higher(s.cut_k, s.cut_p), s.floor);
    if (above(before, cut)) {
        if ((!k || found[0].count < f.top_k) && (!p || found[0].mass < f.top_p * s.least))
            s.token = before.token;
        else
            settle(s, f, before);
        return;
    }
    Place candidate = {-INFINITY, NOBODY};
    for (int j = 0; j < AMK_LEVELS; j++)
        if (same(s.level[j], cut)) candidate = found[j].winner;
    settle(s, f, candidate);
}
