// Runs the device's search for a draw (vm/search.cuh) without a GPU: the rows of the head are dealt out to workers, which tell and read
// as the device's do. Standard input: cases of `tokens workers top_k top_p min_p temperature`, then a line of logits and one of places
// in the race. Standard output: token and rounds of each case.
#include <cmath>
#include <cstdio>
#include <vector>

typedef unsigned int u32;
#define AMK_DEVICE static inline
#include "search.inc"

static Found look(const std::vector<float>& logits, const std::vector<float>& values, u32 from, u32 to, const Search& s, const Filter& f, Place level) {
    Found found = nothing_found();
    for (u32 i = from; i < to; i++) {
        const Place place = {logits[i], i};
        if (above(place, level)) join(found, {1, expf((logits[i] - s.highest) / f.temperature), values[i], place});
    }
    return found;
}

int main() {
    u32 tokens, workers, top_k;
    float top_p, min_p, temperature;
    while (scanf("%u %u %u %f %f %f", &tokens, &workers, &top_k, &top_p, &min_p, &temperature) == 6) {
        std::vector<float> logits(tokens), values(tokens);
        for (float& x : logits) if (scanf("%f", &x) != 1) return 1;
        for (float& x : values) if (scanf("%f", &x) != 1) return 1;
        const Filter f = {top_k, top_p, logf(min_p), temperature};
        Found all = nothing_found();
        float highest = -INFINITY;
        for (float x : logits) highest = fmaxf(highest, x);
        for (u32 i = 0; i < tokens; i++)
            if (!std::isnan(logits[i])) join(all, {1, expf((logits[i] - highest) / temperature), values[i], {logits[i], i}});
        Search s;
        begin(s, f, highest, all.mass, all.winner);
        u32 round = 0;
        for (; s.token == NOBODY && round < 6; round++) {
            Found found[AMK_LEVELS];
            for (u32 j = 0; j < AMK_LEVELS; j++) {
                found[j] = nothing_found();
                for (u32 w = 0; w < workers; w++)
                    join(found[j], look(logits, values, tokens * w / workers, tokens * (w + 1) / workers, s, f, s.level[j]));
            }
            narrow(s, f, found);
        }
        printf("%u %u\n", s.token, round);
    }
}
