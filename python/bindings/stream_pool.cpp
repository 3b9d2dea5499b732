// Answers of a StreamPool become results of Python's futures. That takes the GIL, which may be with somebody else for some
// milliseconds: so a thread of its own does it, and streams compute meanwhile.
#include "stream_pool.h"

#include <ipex/stream_pool.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <unistd.h>

#include <array>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "plain_module.h"

namespace py = pybind11;

namespace ipex::python {
namespace {

struct Answer {
  PyObject* future;  // owned: to be given back under the GIL
  c10::IValue result;
  std::exception_ptr error;
};

// Hands answers out to their futures, in the order in which they come. A callback of a future may drop the pool, and so this: the
// thread holds it too.
class Answers {
 public:
  static std::shared_ptr<Answers> started() {
    const auto answers = std::make_shared<Answers>();
    answers->thread_ = std::thread([answers] { answers->hand_out(); });
    return answers;
  }

  // A list of one: nobody is there to tell that there is no memory for an answer, so it is made with the request.
  void add(std::list<Answer>& answer) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.splice(waiting_.end(), answer);
    }
    has_answer_.notify_one();
  }

  // When no more come. Without the GIL.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    has_answer_.notify_one();
    // A callback runs on the thread itself, which can't wait for itself, nor for who waits for it.
    std::unique_lock lock(joining_, std::defer_lock);
    if (own_of_this_thread == this) {
      if (lock.try_lock() && thread_.joinable()) thread_.detach();
    } else {
      lock.lock();
      if (thread_.joinable()) thread_.join();
    }
  }

 private:
  void hand_out() {
    own_of_this_thread = this;
    const py::gil_scoped_acquire gil;  // now and then released: making Python's state of a thread maps memory
    std::list<Answer> now;
    while (true) {
      {
        const py::gil_scoped_release released;
        std::unique_lock lock(mutex_);
        has_answer_.wait(lock, [this] { return is_closed_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        now.swap(waiting_);
      }
      for (Answer& answer : now) set(py::reinterpret_steal<py::object>(answer.future), answer);
      now.clear();
    }
  }

  static py::object object_of(Answer& answer) {
    try {
      if (answer.error) std::rethrow_exception(answer.error);
      return torch::jit::toPyObject(std::move(answer.result));
    } catch (...) {
      raise(std::current_exception());
      throw py::error_already_set();
    }
  }

  static void set(const py::object& future, Answer& answer) {
    try {
      const py::object result = object_of(answer);
      future.attr("set_result")(result);
    } catch (py::error_already_set& error) {
      try {
        future.attr("set_exception")(error.value());
      } catch (py::error_already_set& again) {
        again.discard_as_unraisable("ipex.StreamPool");
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable has_answer_;
  std::list<Answer> waiting_;
  bool is_closed_ = false;
  std::mutex joining_;
  std::thread thread_;
  static inline thread_local const Answers* own_of_this_thread = nullptr;
};

class Pool {
 public:
  Pool(const torch::jit::Module& module, const StreamPoolOptions& options)
      : module_(module),
        process_(getpid()),
        pool_(std::make_unique<StreamPool>(module, options)),
        answers_(Answers::started()) {}

  ~Pool() { close(); }

  void submit(const py::object& future, const py::args& inputs) {
    const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
    TORCH_CHECK_TYPE(inputs.size() + 1 <= arguments.size(), "ipex.StreamPool: expected at most ", arguments.size() - 1,
                     " inputs, as forward takes, got ", inputs.size(), ".");
    std::vector<c10::IValue> values;
    for (size_t i = 0; i < inputs.size(); ++i) {
      values.push_back(torch::jit::toIValue(inputs[i], arguments[i + 1].type()));
    }
    PyObject* const owned = py::object(future).release().ptr();
    try {
      const auto answer = std::make_shared<std::list<Answer>>();
      answer->push_back({owned, {}, nullptr});
      const py::gil_scoped_release released;
      pool_->submit(std::move(values), [this, answer](c10::IValue result, const std::exception_ptr& error) {
        answer->front().result = std::move(result);
        answer->front().error = error;
        answers_->add(*answer);
      });
    } catch (...) {
      Py_DECREF(owned);
      throw;
    }
  }

  void close() {
    if (process_ != getpid()) {
      new std::shared_ptr<Answers>(answers_);  // after a fork: its thread is not here, and nobody may wait for it
      return;
    }
    const py::gil_scoped_release released;
    pool_->close();
    answers_->close();
  }

  const StreamPlan& plan() const { return pool_->plan(); }

 private:
  const torch::jit::Module module_;
  const pid_t process_;
  const std::unique_ptr<StreamPool> pool_;
  const std::shared_ptr<Answers> answers_;  // after the pool: where there is none, nobody would end its thread
};

StreamPoolOptions options_of(int64_t streams, int64_t threads_per_stream, bool pin, int64_t max_queue) {
  return {streams, threads_per_stream, pin, max_queue};
}

}  // namespace

void define_stream_pool(py::module_& m) {
  py::class_<Pool>(m, "StreamPool")
      .def(py::init([](const torch::jit::Module& module, int64_t streams, int64_t threads_per_stream, bool pin,
                       int64_t max_queue) {
             return std::make_unique<Pool>(module, options_of(streams, threads_per_stream, pin, max_queue));
           }),
           py::arg("module"), py::arg("streams"), py::arg("threads_per_stream"), py::arg("pin"), py::arg("max_queue"))
      .def("submit", &Pool::submit)
      .def("close", &Pool::close)
      .def("plan", [](const Pool& pool) {
        return std::tuple(pool.plan().streams, pool.plan().threads_per_stream, pool.plan().cpus);
      });
  m.def(
      "plan_streams",
      [](int64_t streams, int64_t threads_per_stream, bool pin, const std::vector<std::array<int64_t, 3>>& cpus,
         int64_t quota) {
        std::vector<Cpu> all;
        for (const auto& [number, core, node] : cpus) all.push_back({number, core, node});
        const StreamPlan plan = plan_streams(options_of(streams, threads_per_stream, pin, 0), all, quota);
        return std::tuple(plan.streams, plan.threads_per_stream, plan.cpus);
      },
      py::arg("streams"), py::arg("threads_per_stream"), py::arg("pin"), py::arg("cpus"), py::arg("quota"));
}

}  // namespace ipex::python
