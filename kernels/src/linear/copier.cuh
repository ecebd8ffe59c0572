// The copying warps of a wide step. They go through the records as the consumers do, list what
// there is to copy for a group of units, and bring its stages into the memory of the ring: a slot's
// weights as soon as no task before uses that part of it. Only inputs wait for other workers. What
// other tasks read through that memory is brought by `copy_other`.
#pragma once
#include "boxes.cuh"

#if AMK_WIDE
// Clock cycles from 4 KiB of weights to the next before the inputs come: slower than the memory, so
// that results and inputs do not queue up behind them.
constexpr u32 EARLY_PACE = AMK_PACE * 4 / 3;

// A unit of weights: its piece of a tape, its number there, and the units of the piece.
struct UnitPlace {
    const u8* piece;
    u32 unit, units;

    // Unit `unit` of a record: on the worker's own tape, where it is at `tape`, or on the pieces
    // that the arguments name.
    AMK_DEVICE UnitPlace(const Params& p, const u8* tape, const Record& r, u32 unit)
        : piece(tape), unit(unit), units(r.units) {
        if ((AMK_ROWS <= BLOCK_ROWS && !AMK_SHARED_COLUMNS) || !r.aux) return;
        const u32* words = p.arguments + r.partial;
        this->unit += r.aux >> 16;
        for (u32 i = 1; i < (r.aux & 0xffff) && this->unit >= words[1] >> 16; i++)
            this->unit -= words[1] >> 16, words += 2;
        units = words[1] >> 16;
        piece = (const u8*)p.tape + p.tape_at[words[1] & 0xffff] + (u64)words[0] * 16;
    }
    // Where its tiles of a pass over k begin.
    AMK_DEVICE u64 tiles(const GemvCut& cut, u32 pass, u32 tile) const {
        const u32 first = unit / AMK_GROUP_UNITS * AMK_GROUP_UNITS,
                  group = min(units - first, (u32)AMK_GROUP_UNITS);
        return (u64)(piece + (first * cut.tiles + cut.first(pass) * group +
                              (unit - first) * cut.count(pass)) *
                                 tile);
    }
};

// Copies the inputs of a stage row by row: rows whose logits are wanted, or of the embedding table,
// whose elements are in order.
AMK_DEVICE void gather(const Shared& s, u32 lane, u32 inputs, u32 from, u32 here) {
    const CopyList& c = s.copies;
#pragma unroll 1
    for (u32 i = lane; i < c.columns << (c.log + 2); i += 32) {
        const u32 column = i >> (c.log + 2), piece = i & ((4 << c.log) - 1);
        if (piece >= here * 4) continue;
        if (!c.pitch) {
            const u32 row = s.order[c.first + column], of = from * 4 + piece;
            copy_16(inputs + input_place(c.block, column, piece),
                    (const u8*)c.inputs + ((u64)(of / 8) * AMK_ROWS + row) * 128 +
                        ((of ^ row) & 7) * 16);
            continue;
        }
        const u8* of = (const u8*)c.inputs + (u64)s.rows[c.first + column].token * c.pitch;
        for (u32 k = 0; k < 4; k++)
            copy_4(inputs + input_place(c.block, column, (piece & ~1u) | (k & 1)) +
                       (piece % 2 * 2 + k / 2) * 4,
                   of + (from * 4 + piece) * 16 + k * 4);
    }
}

// The stages of a group that a copying warp brings. The warps take turns, no more of them than
// there are slots: one that is further ahead could not tell whether its slot is empty.
struct StageTurn {
    u32 n, slot, round; // of the stage: its number, its slot and how often that came before

    AMK_DEVICE StageTurn(u32 warp, u32 count, u32 stages)
        : n(warp < stages ? warp : count), slot(warp), round(0) {}
    AMK_DEVICE void advance(u32 stages) {
        const u32 by = min(stages, (u32)AMK_COPIERS);
        n += by, slot += by;
        if (slot >= stages) slot -= stages, round++;
    }
};

struct Copier;
// Generated: brings what a task other than a projection reads. Returns whether the consumers are
// still there.
__device__ __forceinline__ bool copy_other(Copier&, const Record&);
// Likewise: where the memory begins that such a task uses.
__device__ __forceinline__ u32 memory_of(const Record&);

// A copying warp. There are 32 registers: what is needed again is read again.
struct Copier {
    const Params& p;
    Shared& s;
    u32 data, warp, lane;
    u64 tape;          // where the record's piece begins
    u32 walked;        // records and beginnings of steps so far,
    u32 in_memory;     // up to the last one that uses the memory of the ring
    u32 tasks, groups; // those with inputs, and groups of units followed by others, so far
    u32 emptied;       // parities of the slots before the group
    u32 left;          // of the memory, which no task uses from the last group's products on

    // Whether the consumers are still there when a wait has passed.
    template <class F> AMK_DEVICE bool await(F passed) const {
        while (!all(passed()))
            if (any(s.abandoned || load_shared_atomic(&s.done))) return false;
        return true;
    }
    // Waits for the other copying warps. One that has left because the launch is abandoned is not
    // waited for.
    AMK_DEVICE bool sync(u32 parity) const {
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.copiers));
        return await([&] { return barrier_passed(shared_address(&s.copiers), parity); });
    }
    AMK_DEVICE static bool has(const u32& counter, u32 count) {
        return all((int)(counted(counter) - count) >= 0);
    }
    // Waits until no task before the group uses the memory, or what `is_left` asks for. It rests in
    // between, so that consumers have the shared memory to themselves.
    template <class F> AMK_DEVICE bool await_memory(F is_left) const {
        return await([&] {
            const bool is_free = has(s.groups, groups) && (has(s.progress, in_memory) || is_left());
            if (!is_free) __nanosleep(64);
            return is_free;
        });
    }
    AMK_DEVICE bool await_memory() const {
        return await_memory([] { return false; });
    }
    // Whether the tasks before leave the slot of one of the first stages alone: what the last group
    // had there has been read. All its stages have been asked for, so that a slot's last round has
    // passed or is the next one. Slots are emptied again when these tasks have ended.
    AMK_DEVICE bool is_left(const StageTurn& turn) const {
        const CopyList& c = s.copies;
        const u32 begin = turn.slot * c.bytes, end = begin + c.bytes;
        if (any(end > left)) return false;
        const u32 first = min(turn.slot, begin / c.bytes_before),
                  last = max(turn.slot, (end - 1) / c.bytes_before);
        const bool is_other = lane < first || lane > min(last, WIDE_STAGES - 1);
        return all(is_other || barrier_has_passed(shared_address(s.stage_empty) + 8 * lane,
                                                  (emptied >> lane ^ 1) & 1));
    }
    // Waits for the inputs of the task. Its consumers do not go on to the next one before the warp
    // has passed, which has a part of this one.
    AMK_DEVICE bool await_inputs() const {
        return await([&] { return barrier_passed(shared_address(&s.inputs), tasks & 1); });
    }
    AMK_DEVICE Record record(u32 index) const {
        const u32 word = ((const u32*)(p.records + index))[lane % RECORD_WORDS];
        union {
            Record record;
            u32 words[RECORD_WORDS];
        } r = {};
#pragma unroll
        for (int k = 0; k < RECORD_WORDS; k++) r.words[k] = __shfl_sync(~0u, word, k);
        return r.record;
    }

    // Lists what to copy for a group: where its tiles are, and its inputs.
    AMK_DEVICE bool list(u32 index, u32 number) const {
        const Record r = record(index);
        const GemvShape g(r.shape);
        const WideGroups groups{p, s, r, g, number};
        const WideGroup c = groups.group();
        const GemvCut cut(g);
        if (!sync(0)) return false; // all are done with the list before
        const UnitPlace place(p, (const u8*)tape, r, c.first + min(lane, c.units - 1));
#pragma unroll 1
        for (u32 pass = warp; pass < cut.passes; pass += AMK_COPIERS)
            s.tile_at[pass][lane] = place.tiles(cut, pass, c.tile);
        if (warp == 0)
            list_boxes(p, s, lane, c.units, c.tile << c.log, cut.count(0) * c.tile,
                       cut.count(cut.passes - 1) * c.tile);
        if (warp + 1 == AMK_COPIERS && lane == 0) {
            CopyList& list = s.copies;
            list.bytes_before = list.bytes, list.left = c.left();
            list.tiles = c.tiles, list.columns = c.columns, list.units = c.units;
            list.tile = c.tile, list.log = c.log, list.block = c.block, list.bytes = c.bytes;
            list.stages = c.stages, list.inputs_at = c.inputs(0);
            list.passes = cut.passes, list.of_pass = cut.depth * AMK_WARPS >> c.log;
            list.count = c.count();
            list.gathers = c.gathers;
            const bool embeds = g.input == IN_EMBEDDING;
            list.pitch = embeds ? p.hidden * 2 : 0;
            list.inputs = embeds ? (u64)p.embedding : (u64)(p.packets + (u64)r.input * AMK_ROWS);
            list.first = c.column;
            if (!list.gathers) list.inputs += c.column * LINE;
            const u32 from = TileRange(r, g).first;
            list.before = from >> c.log;
            list.inputs += (u64)(from / 2) * AMK_ROWS * LINE;
            list.gamma = g.flags & GEMV_NORM ? (u64)(p.constants + r.norm) : 0;
        }
        return sync(1);
    }

    // Tiles of a stage.
    AMK_DEVICE u32 tiles_of(u32 n) const {
        const CopyList& c = s.copies;
        return min(c.tiles - (n << c.log), 1u << c.log);
    }
    // Requests the weights of a stage, and the norm's.
    AMK_DEVICE void request_weights(const StageTurn& turn) const {
        const CopyList& c = s.copies;
        const u32 here = tiles_of(turn.n), to = data + turn.slot * c.bytes,
                  full = shared_address(s.stage_full) + 8 * turn.slot;
        u32 pass = 0, into = c.before + turn.n;
        for (; into >= c.of_pass; into -= c.of_pass) pass++;
        const u32 bytes = c.units * here * c.tile +
                          (c.gathers ? 0 : (here + 1) / 2 * c.columns * LINE) +
                          (c.gamma ? here * 64 : 0);
        if (lane == 0) barrier_expect(full, bytes);
        const u32 offset = (into << c.log) * c.tile;
        const auto unit_at = [&](u32 unit) { return s.tile_at[pass][unit] + offset; };
        if (c.boxes && here == 1 << c.log)
            copy_boxes(c, lane, to, c.maps[pass + 1 == c.passes], full, unit_at);
        else
            copy_runs(
                lane, c.units, here * c.tile, full,
                [&](u32 unit) { return to + unit * (c.tile << c.log); }, unit_at);
        if (c.gamma)
            copy_runs(
                lane, 1, here * 64, full,
                [&](u32) { return to + c.inputs_at + (c.block << c.log) / 2; },
                [&](u32) { return c.gamma + (turn.n << c.log) * 64; });
    }
    // Requests the inputs of a stage, for which all its copies are then on their way.
    AMK_DEVICE void request_inputs(const StageTurn& turn) const {
        const CopyList& c = s.copies;
        const u32 here = tiles_of(turn.n), from = turn.n << c.log,
                  inputs = data + turn.slot * c.bytes + c.inputs_at,
                  full = shared_address(s.stage_full) + 8 * turn.slot;
        if (c.gathers)
            gather(s, lane, inputs, from, here);
        else
            copy_runs(
                lane, (here + 1) / 2, c.columns * LINE, full,
                [&](u32 k) { return inputs + k * c.block; },
                [&](u32 k) { return c.inputs + (u64)(from / 2 + k) * AMK_ROWS * LINE; });
        arrive_after_copies(full);
    }
    // Waits until the slot of a stage is empty.
    AMK_DEVICE bool await_slot(const StageTurn& turn) const {
        return await([&] {
            return barrier_passed(shared_address(s.stage_empty) + 8 * turn.slot,
                                  (emptied >> turn.slot ^ (turn.round - 1)) & 1);
        });
    }

    // Requests the weights of a group's stages that fit the memory, as it is left to them.
    AMK_DEVICE bool request_early(StageTurn turn) const {
        const CopyList& c = s.copies;
        const u32 pace = (c.units * c.tile << c.log) * EARLY_PACE / 4096;
        u32 due = clock_low() + warp * pace;
        const auto is_due = [&] {
            return (int)(clock_low() - due) >= 0 ||
                   barrier_has_passed(shared_address(&s.inputs), tasks & 1);
        };
#pragma unroll 1
        for (; any(turn.n < min(c.count, c.stages)); turn.advance(c.stages)) {
            if (!await_memory([&] { return is_left(turn); }) || !await(is_due)) return false;
            request_weights(turn);
            due += AMK_COPIERS * pace;
        }
        return true;
    }
    // Brings the stages of the group that is listed.
    AMK_DEVICE bool copy_group() {
        const u32 count = s.copies.count, stages = s.copies.stages;
        const StageTurn begin(warp, count, stages);
        if (!request_early(begin)) return false;
        StageTurn turn = begin;
        if (any(begin.n < count) && !await_inputs()) return false;
#pragma unroll 1
        for (; any(turn.n < min(count, stages)); turn.advance(stages)) request_inputs(turn);
#pragma unroll 1
        for (; any(turn.n < count); turn.advance(stages)) {
            if (!await_slot(turn)) return false;
            request_weights(turn);
            request_inputs(turn);
        }
        return true;
    }
    // The groups of a record.
    AMK_DEVICE u32 groups_of(const Record& r) const {
        const GemvShape g(r.shape);
        const WideGroups groups{p, s, r, g};
        return groups.none() ? 0 : groups.count();
    }
    // Returns whether the consumers are still there.
    AMK_DEVICE bool copy(u32 index, u32 count) {
#pragma unroll 1
        for (u32 number = 0; any(number < count); number++) {
            groups += number != 0;
            if (!list(index, number) || !copy_group()) return false;
            const CopyList& c = s.copies;
            const u32 rounds = c.count / c.stages;
            if (rounds & 1) emptied ^= (1 << c.stages) - 1;
            emptied ^= (1 << (c.count - rounds * c.stages)) - 1;
            left = c.left;
        }
        tasks++;
        return true;
    }
    AMK_DEVICE void run() {
        for (u32 step = 0; any(step < p.steps); step++) {
            in_memory = ++walked, left = 0; // a step's beginning says which rows are wanted
            tape = (u64)(p.tape + p.tape_at[blockIdx.x]);
            if (!await([&] { return has(s.progress, walked); })) return;
#pragma unroll 1
            for (u32 index = p.record_at[blockIdx.x]; any(index < p.record_at[blockIdx.x + 1]);
                 index++) {
                const Record r = record(index);
                const u32 of_tape = r.tape;
                const bool used = uses_memory(r.op);
                if (any(r.op == OP_GEMV)) {
                    const u32 count = groups_of(r);
                    if (any(count) && !copy(index, count)) return;
                } else if (!copy_other(*this, r))
                    return;
                walked++, tape += of_tape;
                if (any(used)) in_memory = walked;
                if (any(used && r.op != OP_GEMV)) left = min(left, memory_of(r));
            }
        }
    }
    // Whether a task uses the memory of the ring.
    AMK_DEVICE static bool uses_memory(u32 op) {
        return op != OP_EMBED && op != OP_ADOPT && op != OP_NORM && op != OP_NORM_ROWS &&
               op != OP_CONVOLVE && op != OP_REDUCE && op != OP_JOIN_ROWS;
    }
};

AMK_DEVICE void copy_stages(const Params& p, Shared& s, u32 data, u32 warp, u32 lane) {
    Copier copier{p, s, data, warp, lane};
    copier.run();
}
#endif
