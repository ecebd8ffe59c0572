// A worker as the fused bodies see it, without a GPU.
#pragma once
#include "device.h"

// ---- the worker, as far as the bodies name it ----
constexpr int SCRATCH_FLOATS = 4352;
enum { TRACE_INPUTS, TRACE_PRODUCT, TRACE_GATHERED };
struct Record {
    u32 units, input, output, shape, row, norm, bias, layer, aux, partial, more, op;
};
struct RowWords {
    u32 token, pos, pages, wanted;
};
struct Params {
    u64* packets;
    u8* kv;
    const Elem* constants;
    const float* inv_freq;
    const u32* page_tables;
    u32 rotary, kv_blocks, pos, row_count;
    float rope_scale, score_scale, eps;
    const Elem* embedding;
    u32 hidden, logit_stride;
    float* logits;
};
struct Feed {
    const u8* from;
    u32 left, slot, at, pass;
};
struct Timed {
    explicit Timed(u32&) {}
};
struct Shared; // the including file has what the bodies keep
AMK_DEVICE float constant(const Elem* c, u32 i) { return __uint_as_float((u32)c[i] << 16); }

// Page tables while a body runs: positions before `first` of a group are read by nobody, and the pages that have no others were given
// back. Nobody reads the tables of other groups at all.
class Holes {
    u32* const tables;
    std::vector<u32> given;

public:
    Holes(u32* tables, u32 blocks, u32 group, u32 first) : tables(tables), given(tables, tables + blocks * AMK_GROUPS) {
        for (u32 i = 0; i < given.size(); i++)
            if (i % AMK_GROUPS != group || i / AMK_GROUPS < first / 64) tables[i] = ~0u;
    }
    ~Holes() { std::copy(given.begin(), given.end(), tables); }
};
