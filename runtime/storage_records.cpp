#include "storage_records.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "packed/call_conditions.h"
#include "packed/safe_product.h"

namespace ipex::runtime {
namespace {

using c10::IValue;

// What a pickle puts on the stack: a text, the name of a class, a number, or something else.
struct ClassName {
  std::string name;
};
using Item = std::variant<std::monostate, std::string, ClassName, int64_t>;

std::optional<int64_t> bytes_of_an_element(const std::string& storage) {
  static const auto sizes = [] {
    std::unordered_map<std::string, int64_t> found;
    const auto add = [&](at::ScalarType type) {
      found.emplace("torch " + std::string(c10::toString(type)) + "Storage", static_cast<int64_t>(elementSize(type)));
    };
#define IPEX_ADD(_, name) add(at::ScalarType::name);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(IPEX_ADD)
#undef IPEX_ADD
    return found;
  }();
  const auto size = sizes.find(storage);
  return size == sizes.end() ? std::nullopt : std::optional(size->second);
}

// Reads a pickle as far as storages ask for it: ("storage", class, record, device, elements) in a tuple that is then
// looked up. Only a tuple that is written out in one run, as torch writes it, counts as one.
class Pickle {
 public:
  explicit Pickle(std::string_view bytes) : rest_(bytes) {}

  // Calls `storage(record, bytes)` for each.
  template <class F>
  void for_each_storage(const F& storage) {
    for (char op = take(1)[0]; op != '.'; op = take(1)[0]) {
      if (op == 'Q') storage(record(), bytes());
      tuple_.clear();
      read(op);
    }
  }

 private:
  std::string_view take(uint64_t count) {
    TORCH_CHECK(count <= rest_.size(), "it ends within a pickle");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  // Little endian, as many bytes as there are.
  static int64_t number(std::string_view bytes, bool is_signed) {
    uint64_t value = is_signed && !bytes.empty() && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
    for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) value = value << 8 | static_cast<uint8_t>(*byte);
    return static_cast<int64_t>(value);
  }
  uint64_t size(uint64_t bytes) { return static_cast<uint64_t>(number(take(bytes), /*is_signed=*/false)); }

  std::string line() {
    const size_t end = rest_.find('\n');
    TORCH_CHECK(end != std::string_view::npos, "it ends within a pickle");
    const std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }

  void push(Item item) {
    run_.push_back(item);
    top_ = std::move(item);
  }

  void read(char op) {
    switch (op) {
      case 'q':
        memo_[size(1)] = top_;
        return;
      case 'r':
        memo_[size(4)] = top_;
        return;
      case 'h':
        return push(memo_[size(1)]);
      case 'j':
        return push(memo_[size(4)]);
      case 'K':
        return push(number(take(1), /*is_signed=*/false));
      case 'M':
        return push(number(take(2), /*is_signed=*/false));
      case 'J':
        return push(number(take(4), /*is_signed=*/true));
      case '\x8a': {
        const std::string_view bytes = take(size(1));
        return push(bytes.size() == 8 ? Item(number(bytes, /*is_signed=*/true)) : Item());
      }
      case 'X':
        return push(std::string(take(size(4))));
      case '\x8d':
        return push(std::string(take(size(8))));
      case 'c': {
        const std::string of = line();
        return push(ClassName{of + " " + line()});
      }
      case 't':
        tuple_ = std::move(run_);
        break;
      case 'G':
        take(8);
        break;
      case '\x80':
        take(1);
        break;
      default:
        TORCH_CHECK(std::string_view("(NRabe]}s)u\x81\x85\x86\x87\x88\x89Q").find(op) != std::string_view::npos,
                    "a pickle that torch doesn't write");
    }
    run_.clear();
    top_ = {};
  }

  template <class T>
  const T& in_tuple(size_t i) const {
    const T* item = tuple_.size() == 5 ? std::get_if<T>(&tuple_[i]) : nullptr;
    TORCH_CHECK(item, "it names a storage as torch doesn't");
    return *item;
  }
  const std::string& record() const { return in_tuple<std::string>(2); }
  int64_t bytes() const {
    const auto size = bytes_of_an_element(in_tuple<ClassName>(1).name);
    const auto count = size ? safe_product({*size, in_tuple<int64_t>(4)}) : std::nullopt;
    TORCH_CHECK(count && *count >= 0, "it names a storage as torch doesn't");
    return *count;
  }

  std::string_view rest_;
  std::vector<Item> run_;    // what was pushed one after the other since something else happened
  std::vector<Item> tuple_;  // the run that the last op made a tuple of
  Item top_;                 // of the stack, where the last op pushed it
  std::unordered_map<uint64_t, Item> memo_;
};

// Every tensor within a value, each object once: lists can hold themselves.
template <class F>
void for_each_tensor(const IValue& from, const F& f) {
  std::vector<IValue> open{from};
  std::unordered_set<const void*> seen;
  while (!open.empty()) {
    const IValue value = std::move(open.back());
    open.pop_back();
    if (value.isTensor()) {
      f(value.toTensor());
      continue;
    }
    if (!value.isPtrType() || !seen.insert(value.internalToPointer()).second) continue;
    if (value.isTuple()) {
      const auto& elements = value.toTupleRef().elements();
      open.insert(open.end(), elements.begin(), elements.end());
    } else if (value.isList()) {
      for (const IValue& element : value.toListRef()) open.push_back(element);
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict()) open.insert(open.end(), {entry.key(), entry.value()});
    } else if (value.isObject()) {
      const auto& slots = value.toObjectRef().slots();
      open.insert(open.end(), slots.begin(), slots.end());
    }
  }
}

void check(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.defined() || !has_plain_memory(tensor) || has_all_its_memory(tensor), "a tensor of ",
              tensor.sizes(), " that its storage does not hold");
}

void check_constants(const torch::jit::Block& block) {
  for (const torch::jit::Node* node : block.nodes()) {
    for (const torch::jit::Block* inner : node->blocks()) check_constants(*inner);
    if (node->kind() != c10::prim::Constant) continue;
    if (const auto value = torch::jit::toIValue(node->output())) check_tensors(*value);
  }
}

}  // namespace

void check_storage_records(caffe2::serialize::PyTorchStreamReader& file, const std::string& pickles,
                           const std::string& records) {
  for (const std::string part : {"constants", "data"}) {
    const std::string pickle = pickles + part + ".pkl", begin = records.empty() ? part + "/" : records;
    if (!file.hasRecord(pickle)) continue;
    const auto [bytes, size] = file.getRecord(pickle);
    Pickle({static_cast<const char*>(bytes.get()), size})
        .for_each_storage([&](const std::string& name, int64_t stated) {
          const int64_t held = stated ? static_cast<int64_t>(file.getRecordSize(begin + name)) : 0;
          TORCH_CHECK(held >= stated, "a storage of ", stated, " bytes whose record '", begin, name, "' has ", held);
        });
  }
}

std::string line_of_torch(const std::exception& error) {
  const std::string message = error.what();
  if (message.rfind("ipex", 0) == 0) throw;
  return message.substr(0, message.find('\n'));  // behind it is a backtrace
}

void check_tensors(const IValue& value) { for_each_tensor(value, check); }

void check_tensors(const torch::jit::Module& module) {
  check_tensors(IValue(module._ivalue()));
  for (const auto& part : module.modules()) {
    for (const auto& method : part.get_methods()) {
      check_constants(*torch::jit::toGraphFunction(method.function()).graph()->block());
    }
  }
}

}  // namespace ipex::runtime
