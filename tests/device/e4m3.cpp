// Rounds to e4m3 without a GPU. Standard input: bits of f32, in decimal. Standard output: for each
// the codes of the number and of its negative as a pair; then the bits of the numbers of all codes.
#define AMK_WARPS 16
#define AMK_ROWS 0
#define AMK_HEAD_DIM 128
#define AMK_TURNS 64
#include "worker.h"
#include "e4m3.inc"

int main() {
    for (u32 bits; scanf("%u", &bits) == 1;) printf("%u\n", pack_e4m3(__uint_as_float(bits), __uint_as_float(bits ^ 1u << 31)));
    for (u32 code = 0; code < 256; code += 4) {
        const u32 four = code | (code + 1) << 8 | (code + 2) << 16 | (code + 3) << 24;
        const uint4 v = widen({code % 8 ? 0 : four, code % 8 ? four : 0});
        const u32 low = code % 8 ? v.z : v.x, high = code % 8 ? v.w : v.y;
        for (u32 pair : {low, high}) printf("%u\n%u\n", pair << 16, pair & 0xffff0000u);
    }
}
