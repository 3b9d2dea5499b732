#include "threads/team.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>

namespace ipex::runtime {
namespace {

// Asked for as the library is loaded: the parent may have a team before it has a region of ours.
std::atomic<bool> is_forked{false};
const int asked_to_be_told = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });

// How often a thread finds that its team was made anew.
struct TeamUse {
  // Above this, of regions_of_an_end for each end less one for each region, the team is kept: after three in short order.
  static constexpr int often = 64, regions_of_an_end = 32, first_stay = 512, longest_stay = 1 << 16;

  int ends = 0;
  int stay = first_stay;  // for how many regions it is kept, the next time: longer, if it was still made then
  int left = 0;           // of these
};

thread_local TeamUse use;

// libgomp does not say. To end nothing takes a tenth of a microsecond, to join one thread ten.
bool end_team_if_any() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds ends_nothing{3};
  const auto begin = Clock::now();
  end_team();
  return Clock::now() - begin > ends_nothing;
}

}  // namespace

void end_team() {
  if (!is_forked) omp_pause_resource_all(omp_pause_soft);
}

bool keeps_team() {
  if (is_forked) return false;
  if (use.left > 0) {
    if (--use.left > 0) return true;
    end_team();                                                  // our own
    use.ends = TeamUse::often - TeamUse::regions_of_an_end / 2;  // then one of aten's is enough
    return false;
  }
  if (!end_team_if_any()) {
    use.ends = std::max(0, use.ends - 1);
    if (use.ends == 0) use.stay = TeamUse::first_stay;
    return false;
  }
  use.ends += TeamUse::regions_of_an_end;
  if (use.ends <= TeamUse::often) return false;
  use.left = use.stay;
  use.stay = std::min(2 * use.stay, TeamUse::longest_stay);
  return true;
}

void run_in_team(int64_t blocks, int threads, c10::function_ref<void(int64_t block)> run) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> has_failed{false};
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  for (int64_t block = next++; block < blocks && !has_failed; block = next++) {
    try {
      run(block);
    } catch (...) {
      if (!has_failed.exchange(true)) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ipex::runtime
