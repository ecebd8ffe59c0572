// Generic tasks: an instruction's own device body, on a tile of any size. The VM waits for what the
// task reads and lays it out as f32, and delivers what the body has set; the body sees views of its
// operands and nothing else.
//
//   AMK_DEVICE void scale_by(Task& t, In x, Weight w, Out y) {
//       for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, x[i] * w[i]);
//   }
//
// Every thread of the worker runs the body. Its arguments are the Rust function's, in order,
// then its results. An index outside a view reads as NaN and is not written.
#pragma once
#include "values.cuh"

// A tile of a buffer, as the image has it: `at` is where the buffer begins, in its packets or in
// bytes of the plain memory.
struct Tile : TileWords {
    AMK_DEVICE u64 at() const { return (u64)at_high << 32 | at_low; }
    AMK_DEVICE u32 kind() const { return form & 255; }
    AMK_DEVICE u32 rank() const { return form >> 8 & 255; }
    AMK_DEVICE bool moves(u32 d) const { return form >> 16 >> d & 17; }
    // A bound: constant, `pos + base`, or `max(0, pos - base)`.
    AMK_DEVICE static u32 bound(u32 base, u32 bits, u32 pos) {
        if (bits & 256) return pos > base ? pos - base : 0;
        return base + (bits & 1 ? pos : 0);
    }
    AMK_DEVICE u32 first(u32 d, u32 pos) const { return bound(lo[d], form >> 16 >> d, pos); }
    AMK_DEVICE u32 last(u32 d, u32 pos) const { return bound(hi[d], form >> 20 >> d, pos); }
    AMK_DEVICE u32 extent(u32 d) const { return hi[d] - lo[d]; }
    // Unrolled: an index that is not a constant would put the tile into memory.
    AMK_DEVICE u32 len() const {
        u32 n = 1;
#pragma unroll
        for (u32 d = 0; d < MAX_RANK; d++)
            if (d < rank()) n *= extent(d);
        return n;
    }
    // Where element `i` of the tile, counted row by row, is in the buffer.
    AMK_DEVICE u32 place(u32 i) const {
        if (rank() == 1) return lo[0] + i;
        u32 at = 0;
#pragma unroll
        for (u32 d = MAX_RANK; d-- > 0;)
            if (d < rank()) at += (lo[d] + i % extent(d)) * stride[d], i /= extent(d);
        return at;
    }
};
static_assert(sizeof(Tile) == sizeof(TileWords), "only methods are added");

AMK_DEVICE float no_number() { return __uint_as_float(0x7fc00000u); }

// An activation that the task reads: `[dim(0), dim(1), ..]`, or counted row by row.
class In {
    const float* data;
    u32 count;
    u32 dims[MAX_RANK];
    friend struct Task;

public:
    AMK_DEVICE u32 len() const { return count; }
    AMK_DEVICE u32 dim(u32 d) const { return dims[d]; }
    AMK_DEVICE float operator[](u32 i) const { return i < count ? data[i] : no_number(); }
    AMK_DEVICE float at(u32 i, u32 j) const {
        return j < dims[1] ? (*this)[i * dims[1] + j] : no_number();
    }
    // Elements `i..i+4`; those past the end are 0. `i` is a multiple of 4.
    AMK_DEVICE float4 four(u32 i) const {
        if (i + 4 <= count) return *(const float4*)(data + i);
        return make_float4(i < count ? data[i] : 0, i + 1 < count ? data[i + 1] : 0,
                           i + 2 < count ? data[i + 2] : 0, 0);
    }
};

// An activation that the task writes: every element of it, before the body ends.
class Out {
    float* data;
    u32 count;
    u32 dims[MAX_RANK];
    friend struct Task;

public:
    AMK_DEVICE u32 len() const { return count; }
    AMK_DEVICE u32 dim(u32 d) const { return dims[d]; }
    AMK_DEVICE float operator[](u32 i) const { return i < count ? data[i] : no_number(); }
    AMK_DEVICE void set(u32 i, float value) const {
        if (i < count) data[i] = value;
    }
};

// A token that the task chooses.
class Choice {
    float* data;
    friend struct Task;

public:
    AMK_DEVICE void set(u32 token) const { *data = __uint_as_float(token); }
};

// A weight: f32 or bf16 in memory, f32 to the body.
class Weight {
    const u8* data;
    u32 dims[MAX_RANK], stride[MAX_RANK];
    bool narrow, fours; // bf16; rows begin at multiples of four elements
    friend struct Task;

    AMK_DEVICE float load(u64 at) const {
        return narrow ? __uint_as_float((u32)__ldg((const u16*)data + at) << 16)
                      : __ldg((const float*)data + at);
    }

public:
    AMK_DEVICE u32 dim(u32 d) const { return dims[d]; }
    AMK_DEVICE u32 len() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
    AMK_DEVICE float at(u32 i, u32 j = 0, u32 k = 0, u32 l = 0) const {
        if (i >= dims[0] || j >= dims[1] || k >= dims[2] || l >= dims[3]) return no_number();
        return load((u64)i * stride[0] + (u64)j * stride[1] + (u64)k * stride[2] +
                    (u64)l * stride[3]);
    }
    // Counted row by row.
    AMK_DEVICE float operator[](u32 i) const {
        const u32 l = i % dims[3], k = i / dims[3] % dims[2], j = i / dims[3] / dims[2] % dims[1];
        return at(i / dims[3] / dims[2] / dims[1], j, k, l);
    }
    // Elements `j..j+4` of row `i` of a matrix; those past its end are 0. `j` is a multiple of 4.
    AMK_DEVICE float4 four(u32 i, u32 j) const {
        if (fours && i < dims[0] && j + 4 <= dims[1]) {
            const u64 from = (u64)i * stride[0] + j;
            if (!narrow) return __ldg((const float4*)((const float*)data + from));
            const uint2 v = __ldg((const uint2*)((const u16*)data + from));
            return make_float4(bf16_low(v.x), bf16_high(v.x), bf16_low(v.y), bf16_high(v.y));
        }
        float4 v;
        v.x = j < dims[1] ? at(i, j) : 0, v.y = j + 1 < dims[1] ? at(i, j + 1) : 0;
        v.z = j + 2 < dims[1] ? at(i, j + 2) : 0, v.w = j + 3 < dims[1] ? at(i, j + 3) : 0;
        return v;
    }
};

// A state: what this worker keeps from step to step. A dimension whose interval moves with the
// position has its full extent; the elements outside the interval are out of reach. With rows a
// state lies in the pages of the row's sequence, which cut the dimension that moves.
class State {
    float* data;
    u32 first[MAX_RANK], last[MAX_RANK], dims[MAX_RANK], stride[MAX_RANK];
#if AMK_ROWS
    const u32* pages;
    u32 axis, block; // the dimension of positions, and the elements that a page has of it
#if AMK_GROUPS > 1
    u32 floats; // of a page of its group
#endif
#endif
    friend struct Task;

    AMK_DEVICE bool reaches(u32 i, u32 j, u32 k, u32 l) const {
        return i >= first[0] && i < last[0] && j >= first[1] && j < last[1] && k >= first[2] &&
               k < last[2] && l >= first[3] && l < last[3];
    }
    AMK_DEVICE u64 place(u32 i, u32 j, u32 k, u32 l) const {
        u64 at = (u64)i * stride[0] + (u64)j * stride[1] + (u64)k * stride[2] + (u64)l * stride[3];
#if AMK_ROWS
        const u32 number = (axis == 0 ? i : axis == 1 ? j : axis == 2 ? k : l) / AMK_PAGE;
#if AMK_GROUPS > 1
        at += (u64)pages[number * AMK_GROUPS] * floats - (u64)number * block;
#else
        at += (u64)pages[number] * AMK_PAGE_FLOATS - (u64)number * block;
#endif
#endif
        return at;
    }

public:
    AMK_DEVICE u32 dim(u32 d) const { return dims[d]; }
    AMK_DEVICE float at(u32 i, u32 j = 0, u32 k = 0, u32 l = 0) const {
        return reaches(i, j, k, l) ? data[place(i, j, k, l)] : no_number();
    }
    // For a state that the function takes as `&mut`.
    AMK_DEVICE void set(float value, u32 i, u32 j = 0, u32 k = 0, u32 l = 0) const {
        if (reaches(i, j, k, l)) data[place(i, j, k, l)] = value;
    }
};

#if AMK_ROWS
// Lays a row's values of a tile out, several loads at a time.
__device__ __noinline__ void gather(Worker w, const Tile& t, u32 row, float* to) {
    constexpr u32 BATCH = 4, STEP = AMK_WARPS * 32;
    const bool pairs = t.kind() == PACKETS_BF16;
    const u32 base = (u32)t.at(), len = t.len();
    for (u32 first = w.thread(); first < len; first += BATCH * STEP) {
        u32 at[BATCH], v[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            at[b] = t.place(first + b * STEP < len ? first + b * STEP : first);
            v[b] = load_relaxed_u32(pairs ? pair_at(w, base, at[b] / 2, row)
                                          : element_at(w, base, at[b], row));
        }
#pragma unroll
        for (u32 b = 0; b < BATCH; b++)
            if (first + b * STEP < len)
                to[first + b * STEP] =
                    pairs ? (at[b] % 2 ? bf16_high(v[b]) : bf16_low(v[b])) : __uint_as_float(v[b]);
    }
}
// Stores a row's values of a tile.
__device__ __noinline__ void deliver_tile(Worker w, const Tile& t, u32 row, const float* values) {
    const u32 kind = t.kind(), base = (u32)t.at(), len = t.len();
    for (u32 i = w.thread(); i < len; i += AMK_WARPS * 32) {
        if (kind == LOGITS)
            w.p.logits[(u64)(w.s.rows[row].wanted - 1) * w.p.logit_stride + t.lo[0] + i] =
                values[i];
        else if (kind == PACKETS_F32)
            *element_at(w, base, t.place(i), row) = __float_as_uint(values[i]);
        else if (i % 2 == 0)
            *pair_at(w, base, t.place(i) / 2, row) = pack_bf16(values[i], values[i + 1]);
    }
}

// The rows of the step that a task is for: of its record's those that there are, or of these the
// wanted ones.
class TaskRows {
    const Worker& w;
    u32 end;
    bool wanted;

    AMK_DEVICE void pass_unwanted() {
        while (any(wanted && row < end && !w.s.rows[row].wanted)) row++;
    }

public:
    u32 row;
    AMK_DEVICE TaskRows(const Worker& w, const Record& r)
        : w(w), end(min(r.row + r.units, w.p.row_count)), wanted(r.aux), row(r.row) {
        pass_unwanted();
    }
    AMK_DEVICE bool left() const { return any(row < end); }
    AMK_DEVICE void next() { row++, pass_unwanted(); }
};
#else
// Waits for the tile's packets, several at a time, and lays their values out.
__device__ __noinline__ void gather(Worker w, const Tile& t, float* to) {
    constexpr u32 BATCH = 4, STEP = AMK_WARPS * 32;
    const bool pairs = t.kind() == PACKETS_BF16;
    const u32 base = (u32)t.at(), len = t.len();
    for (u32 first = w.thread(); first < len; first += BATCH * STEP) {
        u32 at[BATCH];
        uint2 v[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; b++)
            at[b] = t.place(first + b * STEP < len ? first + b * STEP : first);
        for (;;) {
            u32 late = 0;
#pragma unroll
            for (u32 b = 0; b < BATCH; b++)
                v[b] = load_relaxed_one(w.p.packets + base + (pairs ? at[b] / 2 : at[b]));
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) late |= v[b].y ^ w.epoch;
            if (!late) break;
            if (!w.s.abandoned) continue;
            for (u32 b = 0; b < BATCH; b++) w.missing(base + (pairs ? at[b] / 2 : at[b]), v[b].y);
            break;
        }
#pragma unroll
        for (u32 b = 0; b < BATCH; b++)
            if (first + b * STEP < len)
                to[first + b * STEP] = pairs ? (at[b] % 2 ? bf16_high(v[b].x) : bf16_low(v[b].x))
                                             : __uint_as_float(v[b].x);
    }
}
// Publishes the values of a tile.
__device__ __noinline__ void deliver_tile(Worker w, const Tile& t, const float* values) {
    const u32 kind = t.kind(), base = (u32)t.at(), len = t.len();
    for (u32 i = w.thread(); i < len; i += AMK_WARPS * 32) {
        if (kind == LOGITS) {
            const u32 index = t.lo[0] + i;
            if (w.p.logits) w.logits()[index] = values[i];
        } else if (kind == PACKETS_F32)
            w.publish(base + t.place(i), __float_as_uint(values[i]));
        else if (i % 2 == 0)
            w.publish(base + t.place(i) / 2, pack_bf16(values[i], values[i + 1]));
    }
    if (kind == LOGITS) bodies_see_logits(w, values, t.lo[0], len);
}
#endif

struct Task {
    static constexpr u32 SHARED_FLOATS = SCRATCH_FLOATS - AMK_WARPS;

    // ---- for bodies ----
    AMK_DEVICE u32 thread() const { return w.thread(); }
    AMK_DEVICE u32 threads() const { return AMK_WARPS * 32; }
    AMK_DEVICE u32 warp() const { return w.warp; }
    AMK_DEVICE u32 warps() const { return AMK_WARPS; }
    AMK_DEVICE u32 lane() const { return w.lane; }
    // Every thread has come here.
    AMK_DEVICE void sync() const { w.sync(); }
    // SHARED_FLOATS values that the threads share.
    AMK_DEVICE float* shared() const { return memory() + AMK_WARPS; }
    AMK_DEVICE float sum_of_warp(float x) const {
#pragma unroll
        for (int m = 16; m; m /= 2) x += __shfl_xor_sync(~0u, x, m);
        return x;
    }
    // Over all threads, in an order that is the same in every run; every thread calls it.
    AMK_DEVICE float sum(float x) const {
        x = sum_of_warp(x);
        if (w.lane == 0) memory()[w.warp] = x;
        w.sync();
        x = 0;
#pragma unroll
        for (int i = 0; i < AMK_WARPS; i++) x += memory()[i];
        w.sync();
        return x;
    }

    // ---- for the generated call of a body ----
    Worker& w;
    const u32* words; // of this task: tiles, then parameters
    u32 operands;
    float* next; // free scratch
    u32 row;     // of the step, where it has rows

    AMK_DEVICE Task(Worker& w, const Record& r, u32 operands, u32 row = 0)
        : w(w), words(w.p.arguments + r.input), operands(operands),
          next(w.p.scratch + (u64)blockIdx.x * w.p.scratch_len), row(row) {}
    // The next call of the same task, so many words after this one.
    AMK_DEVICE Task(const Task& before, u32 words_before, u32 operands)
        : w(before.w), words(before.words + words_before), operands(operands), next(before.next),
          row(before.row) {}
    // SHARED_FLOATS values behind one for each warp.
    AMK_DEVICE float* memory() const {
#if AMK_WIDE
        return (float*)w.memory(0);
#else
        return w.s.scratch;
#endif
    }
    AMK_DEVICE u32 position() const {
#if AMK_ROWS
        return w.s.rows[row].pos;
#else
        return w.pos();
#endif
    }
    AMK_DEVICE Tile tile(u32 n) const {
        union {
            Tile tile;
            uint4 words[OPERAND_WORDS / 4];
        } t;
#pragma unroll
        for (int i = 0; i < OPERAND_WORDS / 4; i++)
            t.words[i] = __ldg((const uint4*)(words + n * OPERAND_WORDS) + i);
        return t.tile;
    }
    AMK_DEVICE float* room(u32 len) {
        float* at = next;
        next += (len + 3) / 4 * 4;
        return at;
    }
    template <class V> AMK_DEVICE void shape(V& view, const Tile& t) const {
        view.count = t.len();
        for (u32 d = 0; d < MAX_RANK; d++) view.dims[d] = d < t.rank() ? t.extent(d) : 1;
    }
    AMK_DEVICE In in(u32 n) {
        const Tile t = tile(n);
        In view;
        shape(view, t);
        if (t.kind() == PLAIN_F32) { // an input of the whole function, whose tiles are contiguous
            view.data = (const float*)(w.p.plain + t.at()) + t.place(0);
            return view;
        }
        float* to = room(view.count);
#if AMK_ROWS
        gather(w, t, row, to);
#else
        gather(w, t, to);
#endif
        view.data = to;
        return view;
    }
    AMK_DEVICE u32 token(u32 n) {
        const Tile t = tile(n);
#if AMK_ROWS
        return t.kind() == TOKEN ? w.s.rows[row].token
                                 : load_relaxed_u32(element_at(w, (u32)t.at(), t.lo[0], row));
#else
        return t.kind() == TOKEN ? w.s.token : w.read((u32)t.at());
#endif
    }
    AMK_DEVICE Weight weight(u32 n) const {
        const Tile t = tile(n);
        Weight view;
        view.narrow = t.kind() == PLAIN_BF16;
        u64 at = 0;
        for (u32 d = 0; d < MAX_RANK; d++) {
            const bool has = d < t.rank();
            view.dims[d] = has ? t.extent(d) : 1, view.stride[d] = has ? t.stride[d] : 0;
            if (has) at += (u64)t.lo[d] * t.stride[d];
        }
        view.data = w.p.plain + t.at() + at * (view.narrow ? 2 : 4);
        view.fours = t.rank() == 2 && at % 4 == 0 && t.stride[0] % 4 == 0;
        return view;
    }
    AMK_DEVICE State state(u32 n) const {
        const Tile t = tile(n);
        State view;
        u64 at = 0;
        for (u32 d = 0; d < MAX_RANK; d++) {
            const bool has = d < t.rank(), whole = has && t.moves(d);
            view.first[d] = whole ? t.first(d, position()) : 0;
            view.last[d] = whole ? t.last(d, position()) : has ? t.extent(d) : 1;
            view.stride[d] = has ? t.stride[d] : 0;
#if AMK_ROWS
            view.dims[d] = whole ? AMK_POSITIONS : view.last[d];
            if (whole) view.axis = d, view.block = AMK_PAGE * t.stride[d];
#else
            // All of a dimension: what the one outside it steps over.
            view.dims[d] =
                whole ? (d == 0 ? t.outermost : t.stride[d - 1] / t.stride[d]) : view.last[d];
#endif
            if (has && !whole) at += (u64)t.lo[d] * t.stride[d];
        }
#if AMK_ROWS
        view.pages = w.p.page_tables + w.s.rows[row].pages;
#if AMK_GROUPS > 1
        view.pages += t.outermost, view.floats = AMK_PAGE_FLOATS_OF(t.outermost);
#endif
#endif
        view.data = (float*)(w.p.plain + t.at()) + at;
        return view;
    }
    AMK_DEVICE Out out(u32 n) {
        const Tile t = tile(n);
        Out view;
        shape(view, t);
        view.data = room(view.count);
        return view;
    }
    // A value that one call of the task passes to another.
    AMK_DEVICE float* local(const Tile& t) const {
        return w.p.scratch + (u64)blockIdx.x * w.p.scratch_len + t.at();
    }
    AMK_DEVICE In local_in(u32 n) const {
        const Tile t = tile(n);
        In view;
        shape(view, t);
        view.data = local(t);
        return view;
    }
    AMK_DEVICE Out local_out(u32 n) const {
        const Tile t = tile(n);
        Out view;
        shape(view, t);
        view.data = local(t);
        return view;
    }
    AMK_DEVICE Choice choice(u32) {
        Choice view;
        view.data = room(1);
        return view;
    }
    AMK_DEVICE u32 number(u32 n) const { return __ldg(words + operands * OPERAND_WORDS + n); }
    AMK_DEVICE float real(u32 n) const { return __uint_as_float(number(n)); }
    AMK_DEVICE u32 pos(u32) const { return position(); }

    // The task before has delivered what lies in the scratch.
    AMK_DEVICE void begin() const { w.sync(); }
    // All inputs of all threads are there.
    AMK_DEVICE void ready() const {
        w.sync();
        w.stamp(TRACE_INPUTS);
    }
    // The body has ended in this thread: waits for the others.
    AMK_DEVICE void done() const {
        w.stamp(TRACE_PRODUCT);
#if AMK_WIDE
        fence_copies(); // what comes next is copied into the memory that bodies share
#endif
        w.sync();
        w.stamp(TRACE_GATHERED);
    }
#if AMK_ROWS
    AMK_DEVICE void deliver(u32 n, const Out& y) const { deliver_tile(w, tile(n), row, y.data); }
    AMK_DEVICE void deliver(u32 n, const Choice& choice) const {
        const Tile t = tile(n);
        if (w.thread() == 0)
            *element_at(w, (u32)t.at(), t.lo[0], row) = __float_as_uint(*choice.data);
    }
#else
    AMK_DEVICE void deliver(u32 n, const Out& y) const { deliver_tile(w, tile(n), y.data); }
    AMK_DEVICE void deliver(u32 n, const Choice& choice) const {
        if (w.thread() == 0) w.publish((u32)tile(n).at(), __float_as_uint(*choice.data));
    }
#endif
};
