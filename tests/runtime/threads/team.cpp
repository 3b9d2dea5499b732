// OpenMP's team beside our regions, without torch. Prints what is wrong.
#include "threads/team.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

using namespace ipex::runtime;

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("%s\n", what);
  std::exit(1);
}

// As an op of aten's does.
void open_a_region_of_openmp() {
  std::atomic<int> count{0};
#pragma omp parallel num_threads(2)
  ++count;
  require(count == 2, "OpenMP has no two threads here");
}

int how_often_kept(int regions) {
  int kept = 0;
  for (int region = 0; region < regions; ++region) kept += keeps_team();
  return kept;
}

void every_block_is_run_once() {
  for (const int64_t blocks : {1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> counts(blocks);
    run_in_team(blocks, 2, [&](int64_t block) { ++counts[block]; });
    for (const std::atomic<int>& count : counts) require(count == 1, "a block was run twice, or not at all");
  }
}

void an_error_comes_to_the_caller() {
  bool caught = false;
  try {
    run_in_team(64, 2, [](int64_t block) {
      if (block % 8 == 3) throw std::runtime_error("block");
    });
  } catch (const std::runtime_error&) {
    caught = true;
  }
  require(caught, "no error came to the caller");
}

void a_team_is_kept_while_it_is_made_again_and_again() {
  require(how_often_kept(200) == 0, "a team is kept that nobody makes");
  int kept = 0;
  for (int call = 0; call < 100; ++call) {
    open_a_region_of_openmp();
    kept += how_often_kept(4);
  }
  require(kept > 300, "a team that is made every four regions is ended each time");
  how_often_kept(2000);  // for some time it is kept to no purpose
  require(how_often_kept(200) == 0, "a team is kept that nobody makes any more");
}

}  // namespace

int main() {
  every_block_is_run_once();
  an_error_comes_to_the_caller();
  end_team();
  a_team_is_kept_while_it_is_made_again_and_again();
}
