// The passes over an input: of at most four tiles of each warp. The including file defines
// AMK_WARPS.
#pragma once
#define AMK_ALIKE 0 // records say how deep passes are

// Tiles of a warp in a pass where all passes over so many are alike.
static unsigned even_depth(unsigned tiles) {
    const unsigned deep = (tiles + AMK_WARPS - 1) / AMK_WARPS, passes = (deep + 3) / 4;
    return (deep + passes - 1) / passes;
}
