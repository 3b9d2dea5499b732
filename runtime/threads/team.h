// OpenMP's team of the calling thread. aten's parallel ops make it; for milliseconds after each it looks out for the next one, and takes
// half of each core from the pool's threads.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace ipex::runtime {

// Asked before each region of a thread. Ends its team, if it has one; aten's next op makes it anew. Where that happens again and
// again, the two cost each other more than either gains: then it keeps the team, and says that regions run in it as well.
bool keeps_team();

// As Pool::run: blocks go to whoever comes for them. But all threads of the team have to come.
void run_in_team(int64_t blocks, int threads, c10::function_ref<void(int64_t block)> run);

// Ends the threads of the calling thread's team, if it has one. Not in a forked process, whose team has lost its threads.
void end_team();

}  // namespace ipex::runtime
