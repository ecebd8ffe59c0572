// A pass as the products of several rows name it, without a GPU. Tiles that are numbers take no
// inputs.
#pragma once

constexpr u32 SETS = (AMK_ROWS + 7) / 8 * 2, UNIT_SUMS = SETS * 128;
struct RowInputs {
    template <class T> uint2 weights(u32, bool) const { return {}; }
    Fragment fragment(u32, u32, const uint2&) const { return {}; }
};
struct RowPass {
    u32 number, units, tiles, slot;
};
static std::vector<float> row_sums; // by unit, warp, set and lane
static u32 sums_address(const Worker& w) { return w.warp * UNIT_SUMS + w.lane * 4; }
static void add_sums(u32 at, float first, float second, bool more) {
    row_sums[at / 4] = first + (more ? row_sums[at / 4] : 0);
    row_sums[at / 4 + 32] = second + (more ? row_sums[at / 4 + 32] : 0);
}
