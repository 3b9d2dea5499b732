// A type of Python whose objects are called, and nothing else. A type of pybind11's takes longer to call than what the
// objects do.
#pragma once

#include <pybind11/pybind11.h>
#include <structmember.h>
#include <torch/csrc/Exceptions.h>

#include "plain_module.h"

namespace ipex::python {

// `Call` is made from a tuple of arguments, and called with positional arguments and the names of the others.
template <typename Call>
class CallableType {
 public:
  static void define(pybind11::module_& m, const char* name, const char* full_name) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, vectorcall), READONLY, nullptr}, {}};
    static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                  {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                  {Py_tp_members, members},
                                  {}};
    static PyType_Spec spec = {full_name, sizeof(Object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
    const auto type = pybind11::reinterpret_steal<pybind11::object>(PyType_FromSpec(&spec));
    if (!type) throw pybind11::error_already_set();
    m.attr(name) = type;
  }

 private:
  struct Object {
    PyObject base;
    vectorcallfunc vectorcall;
    const Call* call;
  };

  static PyObject* call(PyObject* object, PyObject* const* arguments, size_t count, PyObject* names) {
    const Arguments positional(const_cast<PyObject**>(arguments), PyVectorcall_NARGS(count));
    return (*reinterpret_cast<Object*>(object)->call)(positional, names);
  }

  static PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* /*named*/) {
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto* callable = reinterpret_cast<Object*>(object);
    callable->vectorcall = call;
    try {
      callable->call = new Call(pybind11::reinterpret_borrow<pybind11::tuple>(arguments));
      return object;
    } catch (...) {
      raise(std::current_exception());
    }
    Py_DECREF(object);
    return nullptr;
  }

  static void destroy(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    delete reinterpret_cast<Object*>(object)->call;
    type->tp_free(object);
    Py_DECREF(type);
  }
};

}  // namespace ipex::python
