#include "plain_module.h"

#include <algorithm>
#include <array>

namespace py = pybind11;

namespace ipex::python {
namespace {

// What a call asks for in dictionaries of Python. Made once, and never destroyed: Python may be gone by then.
class Names {
 public:
  static const Names& get() {
    static const Names* names = new Names;
    return *names;
  }

  bool is_plain(PyObject* own, PyObject* forward) const {
    const auto is_empty = [](PyObject* dictionary, const py::str& name) {
      PyObject* hooks = PyDict_GetItemWithError(dictionary, name.ptr());
      return hooks && PyDict_Check(hooks) && PyDict_Size(hooks) == 0;
    };
    return PyDict_GetItemWithError(own, forward_.ptr()) == forward &&
           std::all_of(own_.begin(), own_.end(), [&](const py::str& name) { return is_empty(own, name); }) &&
           std::all_of(global_.begin(), global_.end(),
                       [&](const py::str& name) { return is_empty(globals_.ptr(), name); });
  }

 private:
  Names() : globals_(py::module_::import("torch.nn.modules.module").attr("__dict__")) {}

  static py::str interned(const char* text) { return py::reinterpret_steal<py::str>(PyUnicode_InternFromString(text)); }

  const py::object globals_;
  const py::str forward_ = interned("forward");
  const std::array<py::str, 4> own_{interned("_forward_pre_hooks"), interned("_forward_hooks"),
                                    interned("_backward_pre_hooks"), interned("_backward_hooks")};
  const std::array<py::str, 4> global_{interned("_global_forward_pre_hooks"), interned("_global_forward_hooks"),
                                       interned("_global_backward_pre_hooks"), interned("_global_backward_hooks")};
};

}  // namespace

py::object own_attributes(const py::object& module) {
  auto own = py::reinterpret_steal<py::object>(PyObject_GenericGetDict(module.ptr(), nullptr));
  if (!own) throw py::error_already_set();
  return own;
}

bool is_called_plainly(PyObject* own, PyObject* forward) { return Names::get().is_plain(own, forward); }

PyObject* call_as_usual(const py::object& module, Arguments arguments, PyObject* names) {
  PyObject* usual = PyObject_GetAttrString(module.ptr(), "_call_impl");
  if (!usual) return nullptr;
  PyObject* result = PyObject_Vectorcall(usual, arguments.data(), arguments.size(), names);
  Py_DECREF(usual);
  return result;
}

// pybind11 knows what torch's errors are in Python, if they come out of a function of its own.
PyObject* raise(const std::exception_ptr& error) {
  try {
    py::cpp_function([error] { std::rethrow_exception(error); })();
  } catch (py::error_already_set& in_python) {
    in_python.restore();
  } catch (const std::bad_alloc&) {  // there is no memory for the function
    PyErr_NoMemory();
  }
  return nullptr;
}

}  // namespace ipex::python
