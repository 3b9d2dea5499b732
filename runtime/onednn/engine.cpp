#include "onednn/engine.h"

#include "isa/isa.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

thread_local int pieces_now = 0;  // 0: nobody has said

// oneDNN's way to the pool.
class ThreadsOfOneDnn final : public dnnl::threadpool_interop::threadpool_iface {
 public:
  int get_num_threads() const override { return onednn_pieces(); }
  bool get_in_parallel() const override { return is_in_region(); }
  void parallel_for(int count, const std::function<void(int, int)>& run) override {
    run_blocks(count, [&](int64_t block) { run(static_cast<int>(block), count); });
  }
  uint64_t get_flags() const override { return 0; }
};

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine engine = [] {
    isa::prepare_onednn();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

dnnl::stream& stream() {
  static auto* const threads = new ThreadsOfOneDnn;
  thread_local dnnl::stream stream = dnnl::threadpool_interop::make_stream(engine(), threads);
  return stream;
}

Pieces::Pieces(int count) : before_(pieces_now) {
  pieces_now = count;
  dnnl_threadpool_interop_set_max_concurrency(count);
}

Pieces::~Pieces() { pieces_now = before_; }

int onednn_pieces() {
  constexpr int pieces_of_a_thread = 4;
  if (pieces_now > 0) return pieces_now;
  const int threads = thread_count();
  return threads == 1 ? 1 : threads * pieces_of_a_thread;
}

}  // namespace ipex::runtime
