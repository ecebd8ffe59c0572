// Sets the residual of the rows that a worker owns, from the step's token or from packets.
#pragma once
#include "../abi.cuh"
#include "../../../amk/cuda/device/task.cuh"

// Reads the row of the step's token.
AMK_DEVICE void embed(Worker& w, const Record& r) {
    const Elem* row = w.p.embedding + (u64)w.s.token * w.p.hidden;
    w.for_own_rows(r, [&](u32 i, bool own) {
        if (own) w.s.residual[i] = constant(row, r.row + i) * AMK_EMBEDDING_SCALE;
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
