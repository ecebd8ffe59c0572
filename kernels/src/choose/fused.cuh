// best, choose: argmax over all workers in one hop. Every worker reads every worker's best and so
// knows the next token immediately. If tokens are filtered before the draw, probes run in between:
// each publishes what it finds in the worker's rows above some levels and reads the results of all
// workers, see search.cuh.
#pragma once
#include "../abi.cuh"
#include "race.cuh"

AMK_DEVICE void best_of_warp(float& value, u32& index) {
#pragma unroll
    for (int m = 16; m; m /= 2)
        better(value, index, __shfl_xor_sync(~0u, value, m), __shfl_xor_sync(~0u, index, m));
}
// Two slots by parity of the epoch: a worker may publish the next step's best while another still
// reads the current one.
AMK_DEVICE u32 best_slot(const Worker& w, u32 offset) {
    return offset + (w.epoch & 1) * gridDim.x * 2;
}

static_assert(sizeof(Search) == AMK_SEARCH * 4 && sizeof(Found) == AMK_FIELDS * 4 &&
                  FOUND_WORDS == AMK_FIELDS && AMK_LEVELS * 2 <= AMK_WARPS,
              "as the host counts");
constexpr u32 LOOK_WORDS = AMK_LEVELS * FOUND_WORDS;

AMK_DEVICE Filter filter(const Worker& w) {
    return {w.p.top_k, w.p.top_p, w.p.min_log, 1.0f / w.p.inv_temperature};
}

// A worker's summary of its rows: the winner of the race, the highest logit, and the probability of
// all rows relative to it.
struct Share {
    float value;
    u32 index;
    float highest, sum;
};

// Whether the scratch has a place for a row of the worker's. The times of others are computed
// again.
AMK_DEVICE bool has_place(u32 row) {
    return AMK_WORKER_LOGITS <= SCRATCH_FLOATS || row < SCRATCH_FLOATS;
}

// Code for filtered draws only is out of line, so that it evicts nothing else from the instruction
// cache and takes no registers. It takes copies: a reference would move the worker into memory.

// Stores each row's time in the race in the scratch.
__device__ __noinline__ Share weigh(Worker w, Record r) {
    w.sync(); // other threads wrote the logits and the scratch
    const float* logits = w.logits() + r.row;
    float highest = -INFINITY, sum = 0, best = -INFINITY;
    u32 index = NOBODY;
    for (u32 i = w.thread(); i < r.units * AMK_UNIT; i += AMK_WARPS * 32) {
        const float value = chance(w, logits[i], r.row + i);
        if (has_place(i)) w.s.scratch[i] = value;
        better(best, index, value, r.row + i);
        highest = fmaxf(highest, logits[i]);
    }
#pragma unroll
    for (int m = 16; m; m /= 2) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, m));
    if (w.lane == 0) w.s.running[w.warp][0].x = highest;
    w.sync();
    for (int from = 0; from < AMK_WARPS; from++) highest = fmaxf(highest, w.s.running[from][0].x);
    for (u32 i = w.thread(); i < r.units * AMK_UNIT; i += AMK_WARPS * 32)
        if (logits[i] > -INFINITY) sum += expf((logits[i] - highest) * w.p.inv_temperature);
#pragma unroll
    for (int m = 16; m; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
    best_of_warp(best, index);
    if (w.lane == 0)
        w.s.running[w.warp][0].y = sum, w.s.best_value[w.warp] = best,
        w.s.best_index[w.warp] = index;
    w.sync();
    sum = 0;
    for (int from = 0; from < AMK_WARPS; from++) {
        sum += w.s.running[from][0].y;
        better(best, index, w.s.best_value[from], w.s.best_index[from]);
    }
    return {best, index, highest, sum};
}

AMK_DEVICE void best(Worker& w, const Record& r) {
    Share share = {-INFINITY, NOBODY, 0, 0};
    if (filtering(w))
        share = weigh(w, r);
    else
        w.sync(); // other threads wrote the tops
    if (any(w.warp != 0)) return;
    if (!filtering(w))
        for (u32 top = w.lane; top < TOPS; top += 32)
            better(share.value, share.index, w.s.top_value[top], w.s.top_index[top]);
    best_of_warp(share.value, share.index);
    if (w.lane != 0) return;
    const u32 to = best_slot(w, r.output) + 2 * blockIdx.x, also = r.partial + SHARES * blockIdx.x;
    w.publish(to, __float_as_uint(share.value)), w.publish(to + 1, share.index);
    if (!filtering(w)) return;
    w.publish(also, __float_as_uint(share.index == NOBODY ? -INFINITY : w.logits()[share.index]));
    w.publish(also + 1, __float_as_uint(share.highest)),
        w.publish(also + 2, __float_as_uint(share.sum));
}

AMK_DEVICE Found found_by_warp(Found f) {
#pragma unroll
    for (int m = 16; m; m /= 2)
        join(f,
             {__shfl_xor_sync(~0u, f.count, m),
              __shfl_xor_sync(~0u, f.mass, m),
              __shfl_xor_sync(~0u, f.value, m),
              {__shfl_xor_sync(~0u, f.winner.logit, m), __shfl_xor_sync(~0u, f.winner.token, m)}});
    return f;
}

// Starts the search with all workers' bests and shares.
__device__ __noinline__ void search_begin(Worker w, Record r) {
    if (any(w.warp == 0)) {
        const u32 slot = best_slot(w, r.input);
        Found all = nothing_found(); // its mass is relative to `highest`
        float highest = -INFINITY;
        for (u32 first = 0; first < gridDim.x; first += 32) {
            const u32 from = min(first + w.lane, gridDim.x - 1);
            const u32 value = w.read(slot + 2 * from), token = w.read(slot + 2 * from + 1),
                      also = r.partial + SHARES * from;
            const u32 logit = w.read(also), top = w.read(also + 1), sum = w.read(also + 2);
            const float before = highest;
            if (from == first + w.lane) highest = fmaxf(highest, __uint_as_float(top));
            if (highest == -INFINITY || from != first + w.lane) continue;
            all.mass *= expf((before - highest) * w.p.inv_temperature);
            join(all, {0,
                       __uint_as_float(sum) *
                           expf((__uint_as_float(top) - highest) * w.p.inv_temperature),
                       __uint_as_float(value),
                       {__uint_as_float(logit), token}});
        }
        float top = highest;
#pragma unroll
        for (int m = 16; m; m /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
        all.mass = highest > -INFINITY ? all.mass * expf((highest - top) * w.p.inv_temperature) : 0;
        all = found_by_warp(all);
        if (w.lane == 0) begin(w.s.search, filter(w), top, all.mass, all.winner);
    }
    w.sync();
}

// Narrows the search with all workers' results at the levels of the last round.
__device__ __noinline__ void search_narrow(Worker w, u32 in) {
    if (any(w.warp < AMK_LEVELS)) {
        Found all = nothing_found();
        for (u32 first = 0; first < gridDim.x; first += 32) {
            const u32 from = min(first + w.lane, gridDim.x - 1);
            const u32 at = in + from * LOOK_WORDS + w.warp * FOUND_WORDS;
            uint2 v[FOUND_WORDS];
            u32 late;
            do {
                late = 0;
#pragma unroll
                for (int i = 0; i < FOUND_WORDS; i++) v[i] = load_relaxed_one(w.p.packets + at + i);
#pragma unroll
                for (int i = 0; i < FOUND_WORDS; i++) late |= v[i].y ^ w.epoch;
            } while (any(late && w.missing(at, w.epoch ^ late)));
            if (from == first + w.lane)
                join(all, {v[0].x,
                           __uint_as_float(v[1].x),
                           __uint_as_float(v[2].x),
                           {__uint_as_float(v[3].x), v[4].x}});
        }
        all = found_by_warp(all);
        if (w.lane == 0) w.s.found[w.warp] = all;
    }
    w.sync();
    if (w.thread() == 0) narrow(w.s.search, filter(w), w.s.found);
    w.sync();
}

// Probes the rows, two warps per level.
__device__ __noinline__ void look(Worker w, Record r) {
    const Place level = w.s.search.level[w.warp % AMK_LEVELS];
    const float* logits = w.logits() + r.row;
    Found mine = nothing_found();
    if (w.warp < 2 * AMK_LEVELS)
        for (u32 i = w.warp / AMK_LEVELS * 32 + w.lane; i < r.units * AMK_UNIT; i += 64) {
            const Place place = {logits[i], r.row + i};
            if (above(place, level))
                join(mine,
                     {1, expf((place.logit - w.s.search.highest) * w.p.inv_temperature),
                      has_place(i) ? w.s.scratch[i] : chance(w, place.logit, place.token), place});
        }
    mine = found_by_warp(mine);
    if (w.lane == 0) w.s.found[w.warp] = mine;
    w.sync();
    if (w.thread() < LOOK_WORDS) {
        const u32 of = w.thread() / FOUND_WORDS, field = w.thread() % FOUND_WORDS;
        Found f = w.s.found[of];
        join(f, w.s.found[of + AMK_LEVELS]);
        const u32 word = field == 0   ? f.count
                         : field == 4 ? f.winner.token
                                      : __float_as_uint(field == 1   ? f.mass
                                                        : field == 2 ? f.value
                                                                     : f.winner.logit);
        w.publish(r.output + blockIdx.x * LOOK_WORDS + w.thread(), word);
    }
    w.sync();
}

AMK_DEVICE void probe(Worker& w, const Record& r) {
    if (any(!filtering(w) || (r.layer != 0 && w.s.search.token != NOBODY))) return;
    if (r.layer == 0)
        search_begin(w, r);
    else
        search_narrow(w, r.input);
    if (any(w.s.search.token == NOBODY)) look(w, r);
}

// Whether the host chooses by the logits, which launches over pages keep: where the highest is no
// finite number.
AMK_DEVICE bool left_to_host(float highest) { return AMK_PAGED && !(fabsf(highest) < INFINITY); }

// Returns the best of all workers, as a token in every lane of a warp.
AMK_DEVICE u32 best_of_all(Worker& w, u32 slot) {
    constexpr int LOOKS = 5; // polled at once: 160 workers
    float value = -INFINITY;
    u32 index = NOBODY;
#pragma unroll 1
    for (u32 begin = 0; begin < gridDim.x; begin += 32 * LOOKS) {
        const u32 first = begin + w.lane;
        uint4 v[LOOKS];
        u32 at[LOOKS], late, found; // packet, epoch and worker of a best that has not arrived
#pragma unroll
        for (int i = 0; i < LOOKS; i++)
            at[i] = slot + 2 * (first + 32 * i < gridDim.x ? first + 32 * i : gridDim.x - 1);
        do {
            late = NOBODY;
#pragma unroll
            for (int i = 0; i < LOOKS; i++) v[i] = load_relaxed(w.p.packets + at[i]);
#pragma unroll
            for (int i = 0; i < LOOKS; i++) {
                const bool second = v[i].y == w.epoch;
                if (!second || v[i].w != w.epoch)
                    late = at[i] + second, found = second ? v[i].w : v[i].y;
            }
        } while (any(late != NOBODY && w.missing(late, found)));
#pragma unroll
        for (int i = 0; i < LOOKS; i++) better(value, index, __uint_as_float(v[i].x), v[i].z);
    }
    __syncwarp();
    w.stamp(TRACE_INPUTS);
    best_of_warp(value, index);
    if (left_to_host(value)) index = NOBODY;
    return AMK_PAGED || index < w.p.vocab ? index : 0; // every logit was NaN
}

AMK_DEVICE void choose(Worker& w, const Record& r) {
    const bool filters = filtering(w);
    if (any(filters && w.s.search.token == NOBODY)) search_narrow(w, r.partial);
    if (any(w.warp == 0)) {
        u32 index = filters ? w.s.search.token : best_of_all(w, best_slot(w, r.input));
        if (filters && left_to_host(w.s.search.highest)) index = NOBODY;
        if (w.lane == 0) {
            bool leave = w.s.abandoned;
            // NOBODY + 1 is 0, which means "not yet", so the host reads the highest word.
            if (blockIdx.x == 0 && w.p.tokens && !leave)
                *(volatile u32*)(w.p.tokens + w.step()) = index == NOBODY ? NOBODY : index + 1;
            if (index == NOBODY) leave = true, index = 0;
            if (w.step() + 1 < w.p.forced_count)
                index = w.p.forced[w.step() + 1];
            else
                for (u32 i = 0; i < w.p.stop_count; i++) leave |= index == w.p.stops[i];
            w.s.token = index, w.s.leave = leave;
        }
    }
    w.sync();
}
