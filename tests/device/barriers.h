// Barriers of the shared memory on the CPU. The including file has `shared_address`, and `next_turn`
// for a thread that waits.
#pragma once
#include <map>

// Arrivals that a phase waits for, those it still lacks, and phases so far.
struct Phases {
    u32 count, left, passed;
};
static std::map<u32, Phases> barriers;
static void barrier_init(u32 at, u32 count) { barriers[at] = {count, count, 0}; }
static void barrier_arrive(u32 at) {
    Phases& of = barriers.at(at);
    if (!--of.left) of.left = of.count, of.passed++;
}
// What a copy brings is there at once.
static void barrier_expect(u32 at, u32) { barrier_arrive(at); }
static void arrive_after_copies(u32 at) { barrier_arrive(at); }
static bool barrier_has_passed(u32 at, u32 parity) { return barriers.at(at).passed % 2 != parity; }
static bool barrier_passed(u32 at, u32 parity) {
    const bool passed = barrier_has_passed(at, parity);
    if (!passed) next_turn();
    return passed;
}
