// A call takes the short way where the usual one would come down to running the method on tensors, and the usual way
// everywhere else: hooks, tracing, subclasses of Tensor, other arguments. What is asked here is
// all that nn.Module._call_impl and torch's binding of a ScriptMethod ask.
#include "quick_call.h"

#include <structmember.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/api/object.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <array>

namespace py = pybind11;

namespace ipex::python {
namespace {

using Arguments = c10::ArrayRef<PyObject*>;

// What a call asks for in dictionaries of Python. Made once, and never destroyed: Python may be gone by then.
class Names {
 public:
  static const Names& get() {
    static const Names* names = new Names;
    return *names;
  }

  // Whether the module with these attributes has this `forward`, and hooks neither of its own nor of all modules.
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

class Call {
 public:
  explicit Call(const py::object& module)
      : Call(module, module.attr("forward"), py::cast<const torch::jit::Method&>(module.attr("forward"))) {}

  PyObject* operator()(Arguments arguments, PyObject* names) const {
    try {
      HANDLE_TH_ERRORS
      if (!names && takes(arguments) && is_plain_now()) return run(arguments);
      END_HANDLE_TH_ERRORS_PYBIND
    } catch (...) {
      return raise(std::current_exception());
    }
    return call_as_usual(arguments, names);
  }

 private:
  Call(const py::object& module, py::object forward, const torch::jit::Method& method)
      : module_(module), forward_(std::move(forward)), self_(method.owner()._ivalue()), function_(method.function()) {
    const auto& expected = function_.getSchema().arguments();
    argument_count_ = expected.size() - 1;  // without self
    takes_tensors_ = std::all_of(expected.begin() + 1, expected.end(), [](const c10::Argument& argument) {
      return argument.type()->kind() == c10::TypeKind::TensorType && !argument.kwarg_only();
    });
  }

  bool takes(Arguments arguments) const {
    return takes_tensors_ && arguments.size() == argument_count_ &&
           std::all_of(arguments.begin(), arguments.end(), THPVariable_CheckExact);
  }

  bool is_plain_now() const {
    const auto own = py::reinterpret_steal<py::object>(PyObject_GenericGetDict(module_().ptr(), nullptr));
    if (!own) throw py::error_already_set();
    return Names::get().is_plain(own.ptr(), forward_.ptr()) && !torch::jit::tracer::isTracing();
  }

  PyObject* run(Arguments arguments) const {
    torch::jit::Stack stack;
    stack.reserve(arguments.size() + 1);
    stack.emplace_back(self_);
    for (PyObject* argument : arguments) stack.push_back(torch::jit::toIValue(argument, c10::TensorType::get()));
    {
      const py::gil_scoped_release released;
      function_.run(stack);
    }
    return torch::jit::toPyObject(std::move(stack.back())).release().ptr();
  }

  PyObject* call_as_usual(Arguments arguments, PyObject* names) const {
    PyObject* usual = PyObject_GetAttrString(module_().ptr(), "_call_impl");
    if (!usual) return nullptr;
    PyObject* result = PyObject_Vectorcall(usual, arguments.data(), arguments.size(), names);
    Py_DECREF(usual);
    return result;
  }

  // pybind11 knows what torch's errors are in Python, if they come out of a function of its own.
  static PyObject* raise(const std::exception_ptr& error) {
    try {
      py::cpp_function([error] { std::rethrow_exception(error); })();
    } catch (py::error_already_set& in_python) {
      in_python.restore();
    }
    return nullptr;
  }

  const py::weakref module_;  // which owns this
  const py::object forward_;
  const c10::intrusive_ptr<c10::ivalue::Object> self_;  // keeps the function too
  torch::jit::Function& function_;
  size_t argument_count_;
  bool takes_tensors_;
};

struct QuickCall {
  PyObject base;
  vectorcallfunc vectorcall;
  const Call* call;
};

PyObject* call(PyObject* object, PyObject* const* arguments, size_t count, PyObject* names) {
  const Arguments positional(const_cast<PyObject**>(arguments), PyVectorcall_NARGS(count));
  return (*reinterpret_cast<QuickCall*>(object)->call)(positional, names);
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* /*named*/) {
  PyObject* module = nullptr;
  if (!PyArg_ParseTuple(arguments, "O", &module)) return nullptr;
  PyObject* object = type->tp_alloc(type, 0);
  if (!object) return nullptr;
  auto* quick = reinterpret_cast<QuickCall*>(object);
  quick->vectorcall = call;
  try {
    quick->call = new Call(py::reinterpret_borrow<py::object>(module));
    return object;
  } catch (const py::cast_error&) {
    PyErr_SetString(PyExc_TypeError, "ipex._C.QuickCall: expected a torch.jit.ScriptModule.");
  } catch (py::error_already_set& error) {
    error.restore();
  }
  Py_DECREF(object);
  return nullptr;
}

void destroy(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  delete reinterpret_cast<QuickCall*>(object)->call;
  type->tp_free(object);
  Py_DECREF(type);
}

}  // namespace

// A type of pybind11's takes longer to call than all of this does.
void define_quick_call(py::module_& m) {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(QuickCall, vectorcall), READONLY, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_members, members},
                                {}};
  static PyType_Spec spec = {"ipex._C.QuickCall", sizeof(QuickCall), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                             slots};
  const auto type = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!type) throw py::error_already_set();
  m.attr("QuickCall") = type;
}

}  // namespace ipex::python
