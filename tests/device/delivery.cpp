// Delivers products without a GPU, of one row or with AMK_ROWS of several: sums of the warps' parts are stored or added to the residual, with a bias and a function
// of each element or without; and looks up the embedding, which may be published.
#define AMK_WARPS 16
#include "worker.h"

constexpr int PARTIAL_PITCH = 132;
constexpr u32 LEN = 64, UNITS = LEN / AMK_UNIT, INPUT = 0, OUTPUT = 4096, ADDENDS = 8192;
constexpr u32 BIAS = 16, WEIGHT = BIAS + LEN, SQUARES = 12289, PARTS = 37, TOKENS = 40, EPOCH = 7;
// The function of each element.
static float map_product(u32 function, float x) {
    if (function != 2) exit(printf("function %u\n", function));
    return 0.25f * x;
}
static float gate_products(u32, float gate, float up) { return gate + 2 * up; }

// What keeps a value in a register is of a GPU.
#define asm
#define volatile(...)
#include "delivery.inc"

static std::vector<u64> packets(1 << 16);
static std::vector<Elem> constants(WEIGHT + LEN), table(TOKENS * LEN);
typedef std::vector<float> Vector;
static std::vector<Vector> products; // of each row
// The rows of the step that a record is for: a block of them, where there are several.
static u32 first_row = 0;
static u32 rows() {
    if (AMK_ROWS > BLOCK_ROWS) return min(first_row + BLOCK_ROWS, AMK_ROWS - 1) - first_row;
    return AMK_ROWS ? AMK_ROWS - 1 : 1;
}
static u32 of_step() { return AMK_ROWS > BLOCK_ROWS ? first_row | min(first_row + BLOCK_ROWS, AMK_ROWS) << 16 : 0; }
static void close(const char* what, u32 at, double found, double expected) { near(what, at, found, expected, 0.005 * (1 + std::fabs(expected))); }
static Record record_of(u32 output, bool biased, u32 function) {
    const u32 flags = (biased ? GEMV_BIAS : 0) | function << GEMV_FUNCTION_BIT;
    return {UNITS, INPUT, OUTPUT, 1 | output << GEMV_OUTPUT_BIT | flags << GEMV_FLAGS_BIT, 0, 0, biased ? BIAS : 0, of_step(), 0, 0};
}

#if AMK_ROWS
static float& held(u32 row, u32 i) {
    const Worker w = any_worker();
    return held_at(w, first_row + row, i);
}
static float output(u32 row, u32 i) {
    const Worker w = any_worker();
    const u32 pair = *pair_at(w, OUTPUT, i / 2, first_row + row);
#if AMK_ROW_PACKETS
    for (u32 any = 0; any < AMK_ROWS; any++)
        if (*of_next_step(w, pair_at(w, OUTPUT, i / 2, any)) != ABSENT) exit(printf("pair %u is not cleared\n", i / 2));
#endif
    return i % 2 ? bf16_high(pair) : bf16_low(pair);
}
static void look_up(bool published) {
    const Record r = {UNITS, 0, OUTPUT, published, 0, 0, 0, of_step(), 0, 0};
    published ? by_all<embed_rows<true>>(r) : by_all<embed_rows<false>>(r);
}
#else
static float& held(u32, u32 i) { return shared.residual[i]; }
static float output(u32, u32 i) {
    const u64 found = packets[OUTPUT + i / 2];
    if (found >> 32 != EPOCH) exit(printf("pair %u is not published\n", i / 2));
    return i % 2 ? bf16_high((u32)found) : bf16_low((u32)found);
}
static void look_up(bool published) {
    const Record r = {UNITS, 0, OUTPUT, published, 0, 0, 0, 0, 0, 0};
    published ? by_all<embed<true>>(r) : by_all<embed<false>>(r);
}
#endif

// Puts the warps' parts of the products of a row where the delivery finds them; returns the sums.
static Vector put_parts(u32 row) {
    Vector sums(LEN);
    for (u32 i = 0; i < LEN; i++)
        for (u32 warp = 0; warp < AMK_WARPS; warp++) {
            const float part = drawn();
            sums[i] += part;
#if AMK_WIDE
            u8* const shares = arena + RING + WideGroup::scratch_at();
            const u32 place = (warp * rows() + row) * WideGroup::pitch() + i;
            if (warp < WideGroup::shares) memcpy(shares + 4 * place, &part, 4);
            else sums[i] -= part;
#elif AMK_ROWS
            const u32 place = (i / AMK_UNIT * AMK_WARPS + warp) * (UNIT_SUMS / 4) + row / 4 * 32 + i % AMK_UNIT * 4 + row % 4;
            memcpy(arena + RING + AMK_SLOTS * AMK_CHUNK + 4 * place, &part, 4);
#else
            shared.scratch[warp * PARTIAL_PITCH + i] = part;
#endif
        }
    return sums;
}
static void put_all() {
    products.clear();
    for (u32 row = 0; row < rows(); row++) products.push_back(put_parts(row));
}
#if AMK_WIDE
// Delivers what is in shared memory, or what a warp has in its registers.
static bool in_registers = false;
template <u32 OUTPUT> static void deliver_as(Worker& w, const Record& r, const GemvShape& g, const WideGroup& c) {
    constexpr u32 COLUMNS = 128;
    const u32 unit = 2 * w.warp;
    if (!in_registers) return deliver_shares<OUTPUT>(w, r, g, c);
    if (unit >= UNITS) return;
    float d[COLUMNS / 8][4];
    for (u32 b = 0; b < COLUMNS / 8; b++)
        for (u32 k = 0; k < 4; k++) {
            const u32 column = 8 * b + w.lane % 4 * 2 + k % 2, row = (unit + k / 2) * AMK_UNIT + w.lane / 4;
            d[b][k] = column < c.columns && row < LEN ? products[column][row] : 1000;
        }
    WideDelivery<COLUMNS>{w, r, g, c, unit}.template deliver<OUTPUT>(d);
}
#endif
static void deliver(Worker& w, const Record& r) {
    const GemvShape g(r.shape);
#if AMK_WIDE
    const WideGroup c = {first_row, rows()};
    if (w.thread() < c.columns) store_shared(wide_scales(w, c) + 4 * w.thread(), 1, true);
#if AMK_DEFERRED_NORMS
    if (g.output == OUT_RESIDUAL) load_norm_weights(w, r);
#endif
    w.sync();
    if (g.input == IN_SHARE) deliver_as<OUT_SUMS>(w, r, g, c);
    else if (g.output == OUT_GATED) deliver_as<OUT_GATED>(w, r, g, c);
    else if (g.output == OUT_RESIDUAL) deliver_as<OUT_RESIDUAL>(w, r, g, c);
    else deliver_as<OUT_STORE>(w, r, g, c);
#elif AMK_ROWS
    deliver_rows(w, r, g, 0, r.units, 1, RowDelivery(w, r, g, min(w.warp / SETS, r.units - 1)));
#else
    const u32 units = r.op == OP_ADDENDS ? 1 : r.units; // a helper has the last of its owner's
    if (!Delivery::due(w, units)) return;
    Delivery delivery = {};
    delivery.prepare(w, r, g, 0, units);
    delivery.deliver(w, r, g);
#endif
}
#if AMK_DEFERRED_NORMS
// Makes a record one of a deferred norm: its output's, or its input's, whose sums of squares are
// drawn. Returns the scale of each row.
static std::vector<float> defer(Record& r) {
    const bool added = GemvShape(r.shape).output == OUT_RESIDUAL;
    const Worker w = any_worker();
    std::vector<float> scales(rows(), 1);
    r.norm = added ? WEIGHT : PARTS, r.more = added ? SQUARES : SQUARES + 1;
    if (added) return scales;
    for (u32 row = 0; row < rows(); row++) {
        float sum = 0;
        for (u32 part = 0; part < PARTS; part++) {
            const float squares = 1 + drawn();
            memcpy(element_at(w, 0, r.more + part, row), &squares, 4);
            sum += squares;
        }
        scales[row] = 1 / std::sqrt(sum / GemvShape(r.shape).k + 1e-5f);
    }
    return scales;
}
static void check_squares(const Record& r, const std::vector<Vector>& residual) {
    const Worker w = any_worker();
    for (u32 row = 0; row < rows(); row++) {
        float sum = 0, found;
        for (float x : residual[row]) sum += x * x;
        memcpy(&found, element_at(w, 0, r.more, row), 4);
        close("a sum of squares", row, found, sum);
    }
}
#endif
// Delivers products that have these sums by `RUN`.
template <void (*RUN)(Worker&, const Record&)>
static void check_delivered(Record r, std::vector<Vector> expected, bool deferred = false) {
    const GemvShape g(r.shape);
    const bool added = g.output == OUT_RESIDUAL;
    std::vector<float> scales(rows(), 1);
#if AMK_DEFERRED_NORMS
    if (deferred) scales = defer(r);
#endif
    for (u32 row = 0; row < rows(); row++)
        for (u32 i = 0; i < LEN; i++) {
            float& y = expected[row][i];
            y *= scales[row];
            if (g.flags & GEMV_BIAS) y += constant(constants.data(), BIAS + i);
            if (g.function()) y *= 0.25f;
            held(row, i) = drawn();
            if (added) y += held(row, i);
        }
    by_all<RUN>(r);
    for (u32 row = 0; row < rows(); row++)
        for (u32 i = 0; i < LEN; i++) {
            const float weight = added && deferred ? constant(constants.data(), WEIGHT + i) : 1;
            close("an output", row * LEN + i, output(row, i), weight * expected[row][i]);
            if (added) near("a residual", row * LEN + i, held(row, i), expected[row][i], 1e-4);
        }
#if AMK_DEFERRED_NORMS
    if (deferred && added) check_squares(r, expected);
#endif
}

// With what so many helpers add to the last unit.
static void check(u32 output_kind, bool biased, u32 function, u32 helpers = 0, bool deferred = false) {
    put_all();
    std::vector<Vector> expected = products;
    for (u32 row = 0; row < rows(); row++)
        for (u32 i = 0; i < helpers * AMK_UNIT; i++) {
            const float addend = 4 * drawn();
            packets[ADDENDS + i] = (u64)EPOCH << 32 | __float_as_uint(addend);
            expected[row][LEN - AMK_UNIT + i % AMK_UNIT] += addend;
        }
    Record r = record_of(output_kind, biased, function);
    if (helpers) r.layer = 1 | helpers << 8, r.partial = ADDENDS;
    check_delivered<deliver>(r, expected, deferred);
}

#if AMK_SHARED_COLUMNS
// The sums of some shares of the columns, each stored, which are added up and delivered.
static void check_shares(u32 output_kind, bool biased, u32 function, u32 shares, bool deferred = false) {
    constexpr u32 SUMS = 8192;
    std::vector<Vector> expected(rows(), Vector(LEN));
    for (u32 share = 0; share < shares; share++) {
        put_all();
        for (u32 row = 0; row < rows(); row++)
            for (u32 i = 0; i < LEN; i++) expected[row][i] += products[row][i];
        Record r = record_of(OUT_STORE, false, 0);
        r.shape |= IN_SHARE << GEMV_INPUT_BIT, r.output = SUMS + share * LEN / 2;
        in_registers = AMK_ROWS > 64 && share % 2;
        by_all<deliver>(r);
    }
    in_registers = false;
    Record r = record_of(output_kind, biased, function);
    r.input = SUMS, r.aux = shares, r.partial = LEN;
    check_delivered<reduce>(r, expected, deferred);
}
#endif

#if AMK_SPLIT_K
// A helper publishes its sums as they are.
static void check_addends() {
    const Vector expected = put_parts(0);
    Record r = record_of(OUT_STORE, false, 0);
    r.op = OP_ADDENDS;
    packets.assign(packets.size(), 0);
    by_all<deliver>(r);
    for (u32 i = 0; i < LEN; i++) {
        const u64 found = packets[OUTPUT + i];
        if (found >> 32 != (i < AMK_UNIT ? EPOCH : 0)) exit(printf("addend %u is of another step\n", i));
        if (i < AMK_UNIT) near("an addend", i, __uint_as_float((u32)found), expected[i], 1e-5);
    }
}
#endif

#if AMK_SUMS
// The products of a residual and of a summand, with the sums of squares that their norms need.
static void check_sum() {
    float sums[4] = {};
    Vector products[2];
    for (u32 column : {0, 1}) {
        products[column] = Vector(LEN);
        for (u32 warp = 0; warp < AMK_WARPS; warp++)
            for (u32 i = 0; i < LEN; i++) {
                const float part = drawn();
                shared.scratch[column * SUM_FLOATS + warp * PARTIAL_PITCH + i] = part;
                products[column][i] += part;
            }
    }
    for (u32 i = 0; i < 4 * AMK_WARPS; i++) {
        const float part = i % 4 == 2 ? drawn() : 4 + drawn();
        (&shared.squares[0][0])[i] = part;
        sums[i % 4] += part;
    }
    Record r = record_of(OUT_STORE, false, 0);
    r.shape |= IN_SUM << GEMV_INPUT_BIT | GEMV_NORM << GEMV_FLAGS_BIT;
    by_all<deliver>(r);
    const float k = AMK_TILE_K, inner = 1 / std::sqrt(sums[0] / k + 1e-5f),
                outer = 1 / std::sqrt((sums[1] + 2 * inner * sums[2] + inner * inner * sums[3]) / k + 1e-5f);
    for (u32 i = 0; i < LEN; i++)
        close("a product of a sum", i, output(0, i), outer * (products[1][i] + inner * products[0][i]));
}
#endif

#if AMK_WIDE
// Rows are pairs of a gate and what it opens.
static void check_gates() {
    put_all();
    by_all<deliver>(record_of(OUT_GATED, false, 0));
    for (u32 row = 0; row < rows(); row++)
        for (u32 i = 0; i < LEN / 2; i++) {
            const float gate = products[row][2 * i], up = products[row][2 * i + 1];
            close("a gate's output", row * LEN + i, output(row, i), gate + 2 * up);
        }
}
#endif

// All deliveries for the rows of a record.
static void check_all() {
#if AMK_WIDE
    check_gates();
    in_registers = AMK_ROWS > 64;
    if (in_registers) {
        check_gates();
        check(OUT_STORE, true, 2), check(OUT_RESIDUAL, true, 2), check(OUT_RESIDUAL, false, 0);
    }
    in_registers = false;
#endif
    for (u32 output : {(u32)OUT_STORE, (u32)OUT_RESIDUAL})
        for (bool biased : {false, true})
            for (u32 function : {0, 2}) check(output, biased, function);
#if AMK_SHARED_COLUMNS
    for (u32 shares : {2, 5, 8})
        check_shares(OUT_STORE, true, 2, shares), check_shares(OUT_RESIDUAL, shares == 5, 0, shares);
#endif
#if AMK_DEFERRED_NORMS
    for (u32 shares : {2, 5})
        check_shares(OUT_STORE, shares == 5, 2, shares, true), check_shares(OUT_RESIDUAL, shares == 5, 0, shares, true);
    check(OUT_RESIDUAL, true, 2, 0, true), check(OUT_RESIDUAL, false, 0, 0, true);
#endif
#if AMK_SUMS
    check_sum();
#endif
#if AMK_SPLIT_K
    for (u32 helpers : {1, 2, 3})
        for (u32 output : {(u32)OUT_STORE, (u32)OUT_RESIDUAL}) check(output, output == OUT_STORE, 2, helpers);
    check_addends();
#endif
    for (u32 row = 0; row < rows(); row++) shared.rows[first_row + row].token = (7 * row + 3) % TOKENS;
    shared.token = 3;
    for (bool published : {false, true}) {
        for (u32 row = 0; row < rows(); row++)
            for (u32 i = 0; i < LEN; i++) held(row, i) = 0;
        look_up(published);
        for (u32 row = 0; row < rows(); row++)
            for (u32 i = 0; i < LEN; i++) {
                const float x = 1.25f * constant(table.data(), (7 * row + 3) % TOKENS * LEN + i);
                near("an embedding", row * LEN + i, held(row, i), x, 1e-6);
                if (published) close("its packet", row * LEN + i, output(row, i), x);
            }
    }
}

int main() {
    const u32 all = AMK_ROWS ? AMK_ROWS - 1 : 1;
    params = {packets.data(), nullptr, constants.data(), nullptr, nullptr, 0, 0, 0, all, 0, 0, 1e-5f, table.data(), LEN};
    if (AMK_ROWS) packets.resize((u64)AMK_ROW_WORDS * AMK_ROWS * (1 + AMK_ROW_PACKETS) + (1 << 16)), params.packets = packets.data();
    for (Elem& x : constants) x = to_bf16(drawn());
    for (Elem& x : table) x = to_bf16(drawn());
    for (; first_row < all; first_row += BLOCK_ROWS) check_all();
    printf("ok\n");
}
