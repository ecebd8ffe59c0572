// The race of the logits: an argmax, with noise where a token is drawn.
#pragma once
#include "../../../amk/cuda/device/worker.cuh"
#include "../abi.cuh"

static_assert(TOPS == AMK_GROUP_UNITS * AMK_UNIT / 2, "a place for each row pair of a group");

AMK_DEVICE void begin_race(Worker& w) {
    if (w.thread() < TOPS)
        w.s.top_value[w.thread()] = -INFINITY, w.s.top_index[w.thread()] = NOBODY;
}
AMK_DEVICE void better(float& value, u32& index, float v, u32 i) {
    if (v > value || (v == value && i < index)) value = v, index = i;
}

// Whether this step samples under a filter; see search.cuh.
AMK_DEVICE bool filtering(const Worker& w) {
    return w.p.filter && w.step() + 1 >= w.p.forced_count;
}
// Returns the race value of a token: its logit, plus noise when sampling.
AMK_DEVICE float chance(const Worker& w, float logit, u32 token) {
    return w.p.inv_temperature > 0
               ? logit * w.p.inv_temperature + race(w.p.seed, w.p.draw + w.step(), token)
               : logit;
}
// Enters a logit into the race at `top`, which belongs to one thread.
AMK_DEVICE void consider(const Worker& w, u32 top, float logit, u32 index) {
    float value = w.s.top_value[top];
    u32 token = w.s.top_index[top];
    better(value, token, chance(w, logit, index), index);
    w.s.top_value[top] = value, w.s.top_index[top] = token;
}
// Enters the logits of a task, a share of them by each thread that has a place.
AMK_DEVICE void enter_race(Worker& w, const float* logits, u32 first, u32 len) {
    if (filtering(w) || w.thread() >= TOPS) return;
    for (u32 i = w.thread(); i < len; i += TOPS) consider(w, w.thread(), logits[i], first + i);
}
