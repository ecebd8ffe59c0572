// The token's row of the table.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void embed(Task& t, Weight table, u32 token, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, table.at(token, i));
}
