#include "memory.h"

#include <ipex/memory.h>
#include <pybind11/stl.h>

#include <memory>

namespace py = pybind11;

namespace ipex::python {
namespace {

// `with` for a guard.
class UseAllocatorGuard {
 public:
  void enter() {
    if (!guard_) guard_ = std::make_unique<UseAllocator>();
  }
  void exit() { guard_.reset(); }

 private:
  std::unique_ptr<UseAllocator> guard_;
};

// What `ask` gives. Other threads may hold locks of the allocator's and want the GIL: it is let go of first.
template <typename Ask>
auto without_gil(Ask&& ask) {
  const py::gil_scoped_release released;
  return ask();
}

py::dict nested_stats() {
  const MemoryStats stats = without_gil([] { return memory_stats_as_nested_dict(); });
  py::dict nested = py::cast(stats.figures);
  nested["num_alloc_retries"] = stats.num_alloc_retries;
  nested["num_ooms"] = stats.num_ooms;
  nested["num_kept"] = stats.num_kept;
  nested["kept_bytes"] = stats.kept_bytes;
  return nested;
}

py::list snapshot() {
  py::list segments;
  for (const MemorySegment& segment : without_gil([] { return memory_snapshot(); })) {
    py::list blocks;
    for (const MemoryBlock& block : segment.blocks) {
      blocks.append(py::dict(py::arg("address") = block.address, py::arg("size") = block.bytes,
                             py::arg("state") = block.is_allocated ? "active_allocated" : "inactive"));
    }
    segments.append(py::dict(py::arg("address") = segment.address, py::arg("total_size") = segment.bytes,
                             py::arg("allocated_size") = segment.allocated_bytes,
                             py::arg("active_size") = segment.allocated_bytes,
                             py::arg("segment_type") = segment.is_large ? "large" : "small",
                             py::arg("holder") = segment.holder, py::arg("blocks") = blocks));
  }
  return segments;
}

}  // namespace

void define_memory(py::module_& m) {
  const py::call_guard<py::gil_scoped_release> released;
  m.def("memory_stats", [] { return memory_stats(); }, released);
  m.def("memory_stats_as_nested_dict", &nested_stats);
  m.def(
      "memory_summary", [](bool abbreviated) { return memory_summary({}, abbreviated); }, py::arg("abbreviated"),
      released);
  m.def("memory_snapshot", &snapshot);
  m.def("mapped_bytes", &mapped_bytes);
  m.def("reset_peak_memory_stats", [] { reset_peak_memory_stats(); }, released);
  m.def("reset_accumulated_memory_stats", [] { reset_accumulated_memory_stats(); }, released);
  m.def("empty_cache", [] { empty_cache(); }, released);
  m.def("mem_get_info", [] { return mem_get_info(); }, released);
  m.def("set_memory_limit", &set_memory_limit, py::arg("limit"), released);
  m.def("get_memory_limit", &get_memory_limit, released);
  py::class_<UseAllocatorGuard>(m, "UseAllocator")
      .def(py::init())
      .def("__enter__", [](UseAllocatorGuard& guard) { guard.enter(); })
      .def("__exit__", [](UseAllocatorGuard& guard, const py::args&) { guard.exit(); });
}

}  // namespace ipex::python
