// An nn.Module whose forward is one packed op, called from Python. The dispatcher is called at once where the usual way
// would end there too: one float tensor, nothing that wants to see the call, parameters that are still the packed ones.
// Everything else goes the usual way, to the forward that the module has in Python.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <vector>

#include "callable_type.h"
#include "quick_call.h"

namespace py = pybind11;

namespace ipex::python {
namespace {

class Call {
 public:
  // module, name of the op, its arguments after the input, the input's dtype, {name: parameter}.
  explicit Call(const py::tuple& arguments)
      : module_(arguments[0]),
        op_(c10::Dispatcher::singleton().findSchemaOrThrow(py::cast<std::string>(arguments[1]).c_str(), "")),
        dtype_(reinterpret_cast<THPDtype*>(arguments[3].ptr())->scalar_type) {
    const auto& expected = op_.schema().arguments();
    const auto bound = py::cast<py::tuple>(arguments[2]);
    for (size_t i = 0; i < bound.size(); ++i) bound_.push_back(torch::jit::toIValue(bound[i], expected[i + 1].type()));
    for (size_t i = bound.size() + 1; i < expected.size(); ++i) bound_.push_back(expected[i].default_value().value());
    for (const auto& [name, parameter] : py::cast<py::dict>(arguments[4])) {
      parameters_.push_back(
          {py::reinterpret_borrow<py::object>(name), parameter.ptr(), THPVariable_Unpack(parameter.ptr())});
    }
  }

  PyObject* operator()(Arguments arguments, PyObject* names) const {
    try {
      HANDLE_TH_ERRORS
      if (!names && arguments.size() == 1 && THPVariable_CheckExact(arguments[0])) {
        const at::Tensor& input = THPVariable_Unpack(arguments[0]);
        if (input.scalar_type() == dtype_ && is_plain_now()) return run(input);
      }
      END_HANDLE_TH_ERRORS_PYBIND
    } catch (...) {
      return raise(std::current_exception());
    }
    return call_as_usual(module_(), arguments, names);
  }

 private:
  struct Parameter {
    py::object name;
    PyObject* object;  // its address alone is asked for
    at::Tensor tensor;
  };

  bool is_plain_now() const {
    const py::object own = own_attributes(module_());
    return is_called_plainly(own.ptr(), /*forward=*/nullptr) && has_packed_parameters(own.ptr()) &&
           !torch::jit::tracer::isTracing() && !is_in_functorch() && !at::autocast::is_autocast_enabled(at::kCPU);
  }

  // Transforms of torch.func, as vmap, know aten's ops and not ours.
  static bool is_in_functorch() {
    return c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  }

  bool has_packed_parameters(PyObject* own) const {
    static PyObject* name = PyUnicode_InternFromString("_parameters");
    PyObject* now = PyDict_GetItemWithError(own, name);
    if (!now || !PyDict_Check(now)) return false;
    const bool may_differentiate = at::GradMode::is_enabled();
    for (const Parameter& parameter : parameters_) {
      if (PyDict_GetItemWithError(now, parameter.name.ptr()) != parameter.object) return false;
      if (may_differentiate && parameter.tensor.requires_grad()) return false;
    }
    return true;
  }

  PyObject* run(const at::Tensor& input) const {
    torch::jit::Stack stack;
    stack.reserve(bound_.size() + 1);
    stack.emplace_back(input);
    stack.insert(stack.end(), bound_.begin(), bound_.end());
    {
      const py::gil_scoped_release released;
      op_.callBoxed(stack);
    }
    return THPVariable_Wrap(stack.back().toTensor());
  }

  const py::weakref module_;  // which owns this
  const c10::OperatorHandle op_;
  const at::ScalarType dtype_;
  std::vector<c10::IValue> bound_;
  std::vector<Parameter> parameters_;
};

}  // namespace

void define_layer_call(py::module_& m) { CallableType<Call>::define(m, "LayerCall", "ipex._C.LayerCall"); }

}  // namespace ipex::python
