// Runs the tasks of generic bodies of a program with rows (amk/cuda/device/task.cuh) without a GPU, one after the other. Standard
// input: the image, then commands. `step ROWS WANTED LOGITS`, the words of the rows, the length of the page tables and the tables;
// `clear GROUP PAGE` and `copy GROUP FROM TO`. Standard output: the bits of the logits of each step, a line each.
#define AMK_WARPS 2
#include "coroutines.h"

#define static_assert(...) extern int unused
template <class T> static T __ldg(const T* p) { return *p; }

#include "generic_rows.inc"

static u32 word() {
    u32 v;
    if (scanf("%u", &v) != 1) exit(1);
    return v;
}
static std::vector<u32> words() {
    std::vector<u32> all(word());
    for (u32& v : all) v = word();
    return all;
}

struct Placed { u32 worker; Record record; };
static Placed current;

int main() {
    const std::vector<u32> arguments = words(), plain_words = words(), of_records = words();
    const u32 packets = word(), pages_at = word(), bytes = word(), workers = word();
    params.scratch_len = word(), params.logit_stride = word();
    const std::vector<u32> page_bytes = words();
    std::vector<u8> plain(pages_at + (u64)bytes);
    memcpy(plain.data(), plain_words.data(), plain_words.size() * 4);
    std::vector<Placed> tasks(of_records.size() / (1 + RECORD_WORDS));
    memcpy(tasks.data(), of_records.data(), of_records.size() * 4);
    std::vector<u64> values(packets);
    std::vector<float> scratch((u64)workers * params.scratch_len);
    params.arguments = arguments.data(), params.plain = plain.data(), params.packets = values.data(), params.scratch = scratch.data();
    const auto page = [&](u32 group, u32 number) { return plain.data() + pages_at + (u64)number * page_bytes[group]; };
    char command[8];
    while (scanf("%7s", command) == 1) {
        if (!strcmp(command, "clear")) {
            const u32 group = word(), number = word();
            memset(page(group, number), 0, page_bytes[group]);
            continue;
        }
        if (!strcmp(command, "copy")) {
            const u32 group = word(), from = word(), to = word();
            memcpy(page(group, to), page(group, from), page_bytes[group]);
            continue;
        }
        params.row_count = word();
        const u32 wanted = word();
        for (u32 i = 0; i < params.row_count; i++)
            shared.rows[i].token = word(), shared.rows[i].pos = word(), shared.rows[i].pages = word(), shared.rows[i].wanted = word();
        const std::vector<u32> tables = words();
        std::vector<float> logits((u64)wanted * params.logit_stride);
        params.page_tables = tables.data(), params.logits = logits.data();
        // What a step leaves is of no use to the next.
        for (u64& value : values) value = 0x7fc000007fc00000ull;
        for (const Placed& task : tasks) {
            current = task, blockIdx.x = task.worker;
            run([](u32 thread) {
                Worker w = {params, shared, thread / 32, thread % 32};
                dispatch(w, current.record);
            });
        }
        for (float x : logits) printf("%u ", __float_as_uint(x));
        printf("\n");
        fflush(stdout);
    }
}
