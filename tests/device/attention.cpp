// Runs fused attention without a GPU: every split of the cache and their join in a step of one row, with AMK_PAGED over pages, or with
// AMK_ROWS of several rows over pages, against the sums in double precision. Layers are of two kinds. Appended keys and values are compared as well.
// With AMK_GROUPS 2 the kind with a window has pages of its own, in which its layer is the second of two.
#define AMK_WARPS 16
#define AMK_COPIERS 3
#define AMK_GROUP_OF(window) ((window) == 100 ? 1u : 0u)
#define AMK_PAGE_BYTES(group) (((u64)(group) + 1) * KV_HEADS * BLOCK_BYTES)
#include "worker.h"
#include "attention.inc"

constexpr u32 HEAD = TEST_HEAD, GROUP = TEST_GROUP, KV_HEADS = 2, SPLITS = TEST_SPLITS, RUN = AMK_WIDE ? 1 : 2, HEADS = GROUP * KV_HEADS;
constexpr u32 COPIES = AMK_COPIES, KEYS = KV_HEADS / COPIES; // of each head; heads of keys
constexpr u32 ALL = HEADS + 2 * KEYS, CONTEXT = 1024, TURNED = TEST_TURNED, TABLE = TURNED / 2;
constexpr bool NORM = TEST_NORM, STILL = TEST_STILL; // STILL: heads of the second kind are not rotated
constexpr float CAP = TEST_CAP;
constexpr u32 CAP_BITS = TEST_CAP_BITS;
template <u32 KIND> using Kind = Attention<HEAD, GROUP, KV_HEADS, SPLITS, RUN, NORM, KIND && STILL ? 0 : TURNED, KIND ? 0 : 100, KIND * TABLE, CAP_BITS>;

// The group of pages of a kind.
template <class A> constexpr u32 group_of() { return AMK_GROUPS > 1 && A::WINDOW ? 1 : 0; }
// The layer of each kind among those of its group.
constexpr u32 PLACES[2] = {AMK_GROUPS > 1 ? 1u : 0u, AMK_GROUPS > 1 ? 0u : 1u};
// The block of a layer and a head in a page.
template <class A> static u64 in_page(u64 page, u32 layer, u32 head) {
    const u32 layers = AMK_GROUPS == 1 ? AMK_LAYERS : A::WINDOW ? 2 : 1;
    return ((page * layers + PLACES[layer]) * KV_HEADS + head) * A::BLOCK_BYTES;
}
// Page tables of sequences: the pages of the second group are numbered behind those of the first.
static void fill_tables(u32* tables, u32 blocks, u32 pages) {
    for (u32 i = 0; i < blocks * AMK_GROUPS; i++) tables[i] = (i / AMK_GROUPS * 37 + i % AMK_GROUPS * 11 + 5) % pages + i % AMK_GROUPS * pages;
}
// Bytes of all pages.
static u64 bytes_of(u64 pages) { return pages * (AMK_GROUPS == 1 ? AMK_LAYERS : 4) * KV_HEADS * Kind<0>::BLOCK_BYTES; }

typedef std::vector<float> Vector;
// Keys and values of a sequence in a layer, by head and position.
struct Sequence {
    Vector keys[KV_HEADS], values[KV_HEADS];
};
static std::vector<u64> packets(1 << 21);
static std::vector<u8> caches;
static std::vector<Elem> constants(2 * HEAD);
static Vector inv_freq(2 * TABLE);

static Vector drawn_vector(u32 len) {
    Vector v(len);
    for (float& x : v) x = rounded(drawn());
    return v;
}
// A head as attention has it: normalised and rotated.
static Vector ready(const float* from, u32 weight, u32 kind, u32 pos) {
    Vector x(from, from + HEAD);
    if (NORM) {
        double squares = 0;
        for (float v : x) squares += (double)v * v;
        const double scale = 1 / sqrt(squares / HEAD + params.eps);
        for (u32 d = 0; d < HEAD; d++) x[d] *= scale * constant(constants.data(), weight + d);
    }
    Vector y = x;
    for (u32 i = 0; i < (kind && STILL ? 0 : TABLE); i++) {
        const float angle = (float)pos * inv_freq[kind * TABLE + i];
        const double scale = kind ? 1.25 : 0.75, c = cos(angle) * scale, s = sin(angle) * scale;
        y[i] = x[i] * c - x[i + TABLE] * s, y[i + TABLE] = x[i + TABLE] * c + x[i] * s;
    }
    for (float& v : y) v = rounded(v);
    return y;
}
// The output of a query head over the positions from `begin` to `pos`.
static Vector expected(const Vector& q, const Sequence& cache, u32 head, u32 begin, u32 pos) {
    std::vector<double> shares;
    double sum = 0;
    for (u32 t = begin; t <= pos; t++) {
        double score = 0;
        for (u32 d = 0; d < HEAD; d++) score += (double)q[d] * cache.keys[head][t * HEAD + d];
        score *= params.score_scale;
        if (CAP > 0) score = CAP * tanh(score / CAP);
        shares.push_back(exp(score)), sum += shares.back();
    }
    Vector y(HEAD);
    for (u32 d = 0; d < HEAD; d++) {
        double x = 0;
        for (u32 t = begin; t <= pos; t++) x += shares[t - begin] / sum * cache.values[head][t * HEAD + d];
        y[d] = x;
    }
    return y;
}
// Elements of the cache. Half a step between two e4m3 is a sixteenth.
#if AMK_CACHE_BYTES == 1
constexpr float STEP = 1.0f / 16;
static float element_at(const u8* at) { return bf16_low(widen({*at, 0}).x); }
#else
constexpr float STEP = 0;
static float element_at(const u8* at) { return constant((const Elem*)at, 0); }
#endif
static float kept(float x) {
    const u32 pair = pack_cache(x, 0);
    return element_at((const u8*)&pair);
}
template <class A> static void put(u8* block, u32 at, float* key, float* value) {
    for (u32 d = 0; d < HEAD; d += 2) *(CachePair*)(block + key_offset<A>(at, d)) = (CachePair)pack_cache(key[d], key[d + 1]);
    for (u32 d = 0; d < HEAD; d++) *(CacheElem*)(block + value_offset<A>(at, d)) = low_element(pack_cache(value[d], 0)), key[d] = kept(key[d]), value[d] = kept(value[d]);
}
// Compares what was appended, and takes the key: its rounding depends on the last bits of the rotation.
template <class A> static void check_appended(const u8* block, u32 at, float* key, const float* value) {
    for (u32 d = 0; d < HEAD; d++) {
        const float found = element_at(block + key_offset<A>(at, d & ~1u) + d % 2 * AMK_CACHE_BYTES);
        near("a key", d, found, key[d], 0.02 + STEP * fabsf(key[d]));
        near("a value", d, element_at(block + value_offset<A>(at, d)), value[d], 0);
        key[d] = found;
    }
}
static void begin() {
    params = {packets.data(), nullptr, constants.data(), inv_freq.data(), nullptr, 2 * TABLE, CONTEXT / 64, 0, 0, 0, 0.11f, 1e-5f};
    for (Elem& w : constants) w = to_bf16(1 + drawn() / 2);
    for (u32 i = 0; i < 2 * TABLE; i++) inv_freq[i] = powf(i < TABLE ? 1e4f : 1e2f, -(float)(i % TABLE) / TABLE);
}

#if AMK_ROWS
#include "attention_rows.h"
#else
// The loader's copies of a split, into slots of the ring.
struct Loading {
    Params p;
    u32 pos;
    struct {
        u32 unpaced;
    } pace;
    void await_appended() {}
};
template <class A> static void load(const Record& r) {
    Loading l = {params, params.pos, {0}};
    Feed feed = {};
    for (u32 slot = 0;; slot++) {
        if (!feed.left) attention_feed<A>(l, r, feed);
        if (!feed.left) return;
        const u32 bytes = min(feed.left, feed.slot);
        memcpy(arena + RING + slot * AMK_CHUNK, feed.from, bytes);
        feed.from += bytes, feed.left -= bytes;
    }
}
static void rotate(Worker& w, const Record&) { begin_rotation(w); }

// Two sequences take turns. They share no page.
constexpr u32 BLOCKS = CONTEXT / 64, PAGES = 3 * BLOCKS + 1;
static u32 tables[2][BLOCKS * AMK_GROUPS];
template <class A> static u8* block_of(u32 layer, u32 head, u32 t) {
    if (AMK_PAGED) return params.kv + in_page<A>(params.page_tables[t / 64 * AMK_GROUPS + group_of<A>()], layer, head);
    return params.kv + ((layer * KV_HEADS + head) * BLOCKS + t / 64) * A::BLOCK_BYTES;
}

// A step at `pos` of a layer, whose kind is its number.
template <u32 LAYER> static void step(u32 pos) {
    using A = Kind<LAYER>;
    params.pos = pos;
    Sequence cache;
    for (u32 head = 0; head < KV_HEADS; head++) {
        cache.keys[head] = drawn_vector((pos + 1) * HEAD), cache.values[head] = drawn_vector((pos + 1) * HEAD);
        for (u32 t = 0; t < pos; t++)
            put<A>(block_of<A>(LAYER, head, t), t % 64, &cache.keys[head][t * HEAD], &cache.values[head][t * HEAD]);
    }
    const Vector qkv = drawn_vector(ALL * HEAD);
    constexpr u32 INPUT = 0, PARTIAL = 1 << 16, OUTPUT = 1 << 19;
    for (u32 i = 0; i < ALL * HEAD / 2; i++) packets[INPUT + i] = (u64)7 << 32 | pack_bf16(qkv[2 * i], qkv[2 * i + 1]);
    Holes holes(tables[(pos + LAYER) % 2], BLOCKS, group_of<A>(), A::begin(pos));
    for (u32 head = 0; head < KV_HEADS; head++) {
        const Vector key = ready(&qkv[(HEADS + head / COPIES) * HEAD], HEAD, LAYER, pos);
        for (u32 d = 0; d < HEAD; d++) cache.keys[head][pos * HEAD + d] = key[d], cache.values[head][pos * HEAD + d] = kept(qkv[(HEADS + KEYS + head / COPIES) * HEAD + d]);
        for (u32 split = 0; split < SPLITS; split++) {
            const Record r = {1, INPUT, OUTPUT, LAYER, head, 0, HEAD, PLACES[LAYER], split, PARTIAL};
            memset((void*)&shared, 0, sizeof(Shared));
            by_all<rotate>(r);
            load<A>(r);
            by_all<attention<A>>(r);
        }
        check_appended<A>(block_of<A>(LAYER, head, pos), pos % 64, &cache.keys[head][pos * HEAD], &cache.values[head][pos * HEAD]);
    }
    by_all<combine<A>>({HEADS * A::SLICES, 0, OUTPUT, 0, 0, 0, 0, LAYER, 0, PARTIAL});
    for (u32 h = 0; h < HEADS; h++) {
        const Vector y = expected(ready(&qkv[h * HEAD], 0, LAYER, pos), cache, h / GROUP, A::begin(pos), pos);
        for (u32 d = 0; d < HEAD; d++) {
            const u64 found = packets[OUTPUT + (h * HEAD + d) / 2];
            if (found >> 32 != 7) exit(printf("element %u of head %u is not published\n", d, h));
            near("an output", h * HEAD + d, d % 2 ? bf16_high((u32)found) : bf16_low((u32)found), y[d], 0.01);
        }
    }
    std::fill(packets.begin(), packets.end(), 0);
}

int main() {
    begin();
    gridDim.x = 132;
    caches.resize(bytes_of(AMK_PAGED ? PAGES : BLOCKS));
    params.kv = caches.data();
    fill_tables(tables[0], 2 * BLOCKS, PAGES);
    for (u32 pos : {0u, 1u, 17u, 63u, 64u, 127u, 128u, 300u, 700u})
        for (u32 layer = 0; layer < 2; layer++) {
            params.page_tables = tables[(pos + layer) % 2];
            layer ? step<1>(pos) : step<0>(pos);
        }
    printf("ok\n");
}
#endif
