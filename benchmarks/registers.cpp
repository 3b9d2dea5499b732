// What the threads of a machine can do at all: fused multiply-adds on registers, in OpenMP regions of three lengths. Nothing is
// read from memory, and nobody waits but at the end of a region. Needs AVX-512.
//
//   g++ -O2 -fopenmp benchmarks/registers.cpp -o build/registers && build/registers 1 4 16
//
// Prints a row for each number of threads and length: GFLOP/s of the fastest region and of all, and in how many regions two
// threads were on one CPU.
#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <vector>

namespace {

constexpr int sums = 12;  // enough to hide the latency of the instruction

__attribute__((target("avx512f"))) float multiply_and_add(long times) {
  std::array<__m512, sums> sum;
  sum.fill(_mm512_set1_ps(1.0F));
  const __m512 factor = _mm512_set1_ps(0.999F), addend = _mm512_set1_ps(0.001F);
  for (long i = 0; i < times; ++i) {
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, factor, addend);
  }
  float total = 0;
  for (const __m512 s : sum) total += _mm512_reduce_add_ps(s);
  return total;
}

void measure(int threads, long times, int regions) {
  using Clock = std::chrono::steady_clock;
  double fastest = 1e9, all = 0;
  int shared = 0;
  [[maybe_unused]] volatile float used = 0;
  for (int region = 0; region < regions; ++region) {
    std::vector<int> cpus(static_cast<size_t>(threads));
    const auto start = Clock::now();
#pragma omp parallel num_threads(threads)
    {
      const float total = multiply_and_add(times);
      cpus[static_cast<size_t>(omp_get_thread_num())] = sched_getcpu();
      if (total == 0) used = total;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    fastest = std::min(fastest, seconds);
    all += seconds;
    shared += std::set<int>(cpus.begin(), cpus.end()).size() < cpus.size();
  }
  const double operations = 2.0 * 16 * sums * static_cast<double>(times) * threads / 1e9;
  std::printf("| %d | %.0f us | %.0f | %.0f | %d of %d |\n", threads, all / regions * 1e6, operations / fastest,
              operations * regions / all, shared, regions);
}

}  // namespace

int main(int count, char** arguments) {
  std::puts("| threads | a region | GFLOP/s, fastest | of all | on one CPU |\n|---:|---:|---:|---:|---:|");
  for (int i = 1; i < count; ++i) {
    const int threads = std::atoi(arguments[i]);
    measure(threads, 2'000, 1000);
    measure(threads, 20'000, 1000);
    measure(threads, 2'000'000, 50);
  }
}
