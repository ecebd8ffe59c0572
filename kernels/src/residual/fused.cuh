// Sets the residual of the rows that a worker owns, from the step's token or from packets.
#pragma once
#include "../abi.cuh"
#include "../../../amk/cuda/device/task.cuh"

// Reads the row of the step's token. PUBLISHED: other workers' norms read it, too.
template <bool PUBLISHED> AMK_DEVICE void embed(Worker& w, const Record& r) {
    const Elem* row = w.p.embedding + (u64)w.s.token * w.p.hidden;
    float even = 0; // of a pair, which is one lane's
    w.for_own_rows(r, [&](u32 i, bool own) {
        if (!own) return;
        const float x = constant(row, r.row + i) * AMK_EMBEDDING_SCALE;
        w.s.residual[i] = x;
        if (PUBLISHED && i % 2) w.publish(r.output + i / AMK_PER_PACKET, pack_bf16(even, x));
        even = x;
    });
}

// Adopts a residual from packets for the rows that this worker owns.
AMK_DEVICE void adopt(Worker& w, const Record& r) {
    const bool pairs = r.shape;
    w.for_own_rows(r, [&](u32 i, bool own) {
        const u32 at = r.row + i, v = w.read(r.input + (pairs ? at / 2 : at));
        if (own)
            w.s.residual[i] = !pairs ? __uint_as_float(v) : at % 2 ? bf16_high(v) : bf16_low(v);
    });
    w.stamp(TRACE_INPUTS);
}
