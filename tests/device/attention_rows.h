// Steps of rows of several sequences over pages; see attention.cpp.
constexpr u32 PAGES = 64, BLOCKS = CONTEXT / 64, WORDS_OF_TABLE = BLOCKS * AMK_GROUPS;
static u32 tables[4 * WORDS_OF_TABLE];

template <class A> static u8* block_of(u32 row, u32 layer, u32 head, u32 t) {
    return params.kv + in_page<A>(tables[shared.rows[row].pages + t / 64 * AMK_GROUPS + group_of<A>()], layer, head);
}
static void put_pair(u32 offset, u32 pair, u32 row, u32 value) {
    const Worker w = any_worker();
    *pair_at(w, offset, pair, row) = value;
}
static float pair_element(u32 offset, u32 element, u32 row) {
    const Worker w = any_worker();
    const u32 pair = *pair_at(w, offset, element / 2, row);
    return element % 2 ? bf16_high(pair) : bf16_low(pair);
}
// Fills values from `first` on up to `end`, of all rows.
static void fill(u32 first, u32 end, bool next, u32 value) {
    const Worker w = any_worker();
    for (u32 row = 0; row < AMK_ROWS; row++) {
        u32* const words = (u32*)w.words(first, row) - (next ? 2 * AMK_ROWS * AMK_ROW_WORDS : 0);
        std::fill(words, words + 2 * (end - first), value);
    }
}
static void rotate(Worker& w, const Record&) { begin_rotation(w); }

// Bytes that the append tasks have stored for rows with company. A task finds NaNs there until it waits, where it waits itself.
static std::vector<std::pair<u8*, u8>> late;
static void hide_late() {
    for (const auto& [at, byte] : late) *at = 0xff;
}
static void show_late() {
    for (const auto& [at, byte] : late) *at = byte;
}
template <class A> static void add_late(u8* block, u32 at) {
    const auto add = [&](u32 offset, u32 bytes) {
        for (u32 i = 0; i < bytes; i++) late.push_back({block + offset + i, block[offset + i]});
    };
    for (u32 d = 0; d < HEAD; d++) {
        if (d % 2 == 0) add(key_offset<A>(at, d), sizeof(CachePair));
        add(value_offset<A>(at, d), sizeof(CacheElem));
    }
}

#if AMK_WIDE
static u32 long_tasks; // since the barriers began
static void begin_places() {
    long_tasks = 0;
    const u32 inputs = shared_address(&shared.inputs);
    barrier_init(inputs, 1);
    for (u32 i = 0; i < WIDE_STAGES; i++) barrier_init(shared_address(shared.cache_full + i), 33);
}
// Attends in a long step, beside the copying warps.
template <class A> static void attend_by_all(const Record& of) {
    record = of;
    run([](u32 thread) {
        const u32 warp = thread / 32, lane = thread % 32;
        if (warp < AMK_WARPS) {
            Worker w = {params, shared, RING, warp, lane, 7, 0, 0, 0};
            attend_long<A>(w, record);
        } else {
            Copier copier = {params, shared, RING, warp - AMK_WARPS, lane, long_tasks};
            if (!copy_blocks<A>(copier, record)) exit(printf("a copying warp left\n"));
        }
    }, COROUTINES);
    long_tasks += of.aux < params.row_count;
}
#endif

template <u32 LAYER> static void step(const std::vector<u32>& firsts, const std::vector<u32>& lengths) {
    using A = Kind<LAYER>;
    constexpr u32 INPUT = 0, OUTPUT = 4096, LSE = 5120, PARTIAL = 6144, END = PARTIAL + HEADS * SPLITS * HEAD / 2;
    static_assert(END <= AMK_ROW_WORDS, "a row has its words");
    memset((void*)&shared, 0, sizeof(Shared));
    std::vector<u32> of_row;
    std::vector<Sequence> sequences(firsts.size());
    for (u32 n = 0; n < firsts.size(); n++)
        for (u32 i = 0; i < lengths[n]; i++) shared.rows[of_row.size()] = {0, firsts[n] + i, n * WORDS_OF_TABLE, 0}, of_row.push_back(n);
    params.row_count = of_row.size();
    std::vector<Vector> inputs;
    for (u32 row = 0, begin = 0; row < of_row.size(); row++) {
        const u32 n = of_row[row], pos = shared.rows[row].pos;
        Sequence& cache = sequences[n];
        if (pos == firsts[n]) {
            begin = row;
            for (u32 head = 0; head < KV_HEADS; head++) {
                cache.keys[head] = drawn_vector((pos + lengths[n]) * HEAD), cache.values[head] = drawn_vector((pos + lengths[n]) * HEAD);
                for (u32 t = 0; t < pos; t++) put<A>(block_of<A>(begin, LAYER, head, t), t % 64, &cache.keys[head][t * HEAD], &cache.values[head][t * HEAD]);
            }
        }
        inputs.push_back(drawn_vector(ALL * HEAD));
        const Vector& qkv = inputs.back();
        for (u32 i = 0; i < ALL * HEAD / 2; i++) put_pair(INPUT, i, row, pack_bf16(qkv[2 * i], qkv[2 * i + 1]));
        for (u32 head = 0; head < KV_HEADS; head++) {
            const Vector key = ready(&qkv[(HEADS + head / COPIES) * HEAD], HEAD, LAYER, pos);
            for (u32 d = 0; d < HEAD; d++) cache.keys[head][pos * HEAD + d] = key[d], cache.values[head][pos * HEAD + d] = kept(qkv[(HEADS + KEYS + head / COPIES) * HEAD + d]);
        }
    }
    std::vector<std::unique_ptr<Holes>> holes;
    for (u32 n = 0; n < firsts.size(); n++) holes.push_back(std::make_unique<Holes>(tables + n * WORDS_OF_TABLE, BLOCKS, group_of<A>(), A::begin(firsts[n])));
#if AMK_ROW_PACKETS
    // The step before this one has stored everything, this one nothing yet.
    fill(OUTPUT, END, false, ABSENT), fill(OUTPUT, END, true, 0);
#endif
    by_all<rotate>({});
    const u32 block = AMK_WIDE ? AMK_ROW_BLOCK : AMK_ROWS;
    for (u32 head = 0; head < KV_HEADS; head++)
        for (u32 first = 0; first < AMK_ROWS; first += block) by_all<append_rows<A>>({block, INPUT, 0, LAYER, head, 0, HEAD, PLACES[LAYER], first, 0});
    late.clear();
    for (u32 row = 0; AMK_LONE_ROWS && row < of_row.size(); row++) {
        const u32 pos = shared.rows[row].pos;
        for (u32 head = 0; lengths[of_row[row]] > 1 && head < KV_HEADS; head++) add_late<A>(block_of<A>(row, LAYER, head, pos), pos % 64);
    }
    when_awaited = show_late;
#if AMK_WIDE
    begin_places();
    for (u32 head = 0; head < KV_HEADS; head++)
        for (u32 first = 0; first < AMK_ROWS; first += block) {
            const Record r = {block, INPUT, OUTPUT, LAYER, head, 0, HEAD, PLACES[LAYER], first, 0};
            if constexpr (AMK_ROWS <= BLOCK_ROWS)
                hide_late(), by_all<attend_block<A>>(r);
            else if (SPLITS == 1)
                attend_by_all<A>(r);
            else
                for (u32 part = 0; part < SPLITS; part++) attend_by_all<A>({block, INPUT, LSE, LAYER, head, 0, HEAD, PLACES[LAYER], first, PARTIAL, part});
        }
    if constexpr (SPLITS > 1) by_all<join_blocks<A>>({AMK_ROWS, LSE, OUTPUT, 0, 0, 0, 0, 0, 0, PARTIAL});
#else
    for (u32 head = 0; head < KV_HEADS; head++)
        for (u32 split = SPLITS; split-- > 0;) hide_late(), by_all<attend_rows<A>>({1, INPUT, LSE, LAYER, head, 0, HEAD, PLACES[LAYER], split, PARTIAL, OUTPUT});
    by_all<join_rows<A>>({HEADS * A::SLICES, LSE, OUTPUT, 0, 0, 0, 0, 0, 0, PARTIAL});
#endif
#if AMK_ROW_PACKETS
    const Worker w = any_worker();
    const auto cleared = [&](const char* what, u32 offset, u32 words) {
        for (u32 row = 0; row < AMK_ROWS; row++)
            for (u32 i = 0; i < words; i++)
                if (*of_next_step(w, (u32*)w.words(offset, row) + i) != ABSENT)
                    exit(printf("%s[%u] of row %u is not cleared\n", what, i, row));
    };
    cleared("an output", OUTPUT, HEADS * HEAD / 2), cleared("a sum", LSE, HEADS * SPLITS);
    cleared("a part", PARTIAL, HEADS * SPLITS * HEAD);
#endif
    show_late();
    for (u32 row = 0; row < of_row.size(); row++) {
        const u32 pos = shared.rows[row].pos;
        Sequence& cache = sequences[of_row[row]];
        for (u32 head = 0; head < KV_HEADS; head++)
            check_appended<A>(block_of<A>(row, LAYER, head, pos), pos % 64, &cache.keys[head][pos * HEAD], &cache.values[head][pos * HEAD]);
        for (u32 h = 0; h < HEADS; h++) {
            const Vector y = expected(ready(&inputs[row][h * HEAD], 0, LAYER, pos), cache, h / GROUP, A::begin(pos), pos);
            for (u32 d = 0; d < HEAD; d++) near("an output", (row * HEADS + h) * HEAD + d, pair_element(OUTPUT, h * HEAD + d, row), y[d], 0.01);
        }
    }
}

// Nothing is stored behind the memory of a worker.
static void check_memory() {
    for (u32 at = RING + AMK_SLOTS * AMK_SLOT_BYTES + (AMK_WIDE ? 0 : AMK_ROW_SCRATCH); at < sizeof arena; at++)
        if (arena[at]) exit(printf("a store %u bytes into the memory, behind its end\n", at - RING));
}

int main() {
    begin();
    caches.resize(bytes_of(PAGES));
    packets.resize(AMK_ROW_WORDS * AMK_ROWS * (1 + AMK_ROW_PACKETS) + (1 << 16));
    fill_tables(tables, 4 * BLOCKS, PAGES);
    params.kv = caches.data(), params.packets = packets.data(), params.page_tables = tables;
    const u32 long_rows = AMK_ROWS > BLOCK_ROWS ? 30 : AMK_ROWS > 8 ? 11 : 4;
    step<0>({70, 133, 300}, {3, 1, long_rows}), step<1>({70, 133, 300}, {3, 1, long_rows});
    step<0>({0, 126}, {1, 3}), step<1>({0, 126}, {1, 3});
    check_memory();
    printf("ok\n");
}
