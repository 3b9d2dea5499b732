#include "storage_records.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <memory>
#include <optional>
#include <string>
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

// What a pickle puts on the stack: a text, the name of a class, a number, a storage, or something else; and tuples of these.
struct ClassName {
  std::string_view module, name;
};
struct Storage {
  int64_t elements;
};
using Item = std::variant<std::monostate, std::string_view, ClassName, int64_t, Storage>;
using Tuple = std::shared_ptr<const std::vector<Item>>;
using Value = std::variant<Item, Tuple>;

struct Element {
  int64_t bytes;
  int64_t in_a_byte = 1;  // where they are smaller
};

std::optional<Element> element_of(const ClassName& storage) {
  static const auto elements = [] {
    std::unordered_map<std::string, Element> found;
    const auto add = [&](at::ScalarType type) {
      const int64_t in_a_byte = type == at::kQUInt4x2 ? 2 : type == at::kQUInt2x4 ? 4 : 1;
      found.emplace(std::string(c10::toString(type)) + "Storage",
                    Element{static_cast<int64_t>(elementSize(type)), in_a_byte});
    };
#define IPEX_ADD(_, name) add(at::ScalarType::name);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(IPEX_ADD)
#undef IPEX_ADD
    return found;
  }();
  const auto element = elements.find(std::string(storage.name));
  return storage.module != "torch" || element == elements.end() ? std::nullopt : std::optional(element->second);
}

// Reads a pickle as torch does, and makes none of its objects: torch reads some tensors while it loads. A storage is
// ("storage", class, record, device, elements), looked up; a tensor a tuple that begins with one.
class Pickle {
 public:
  explicit Pickle(std::string_view bytes) : rest_(bytes) {}

  // Calls `storage(record, bytes)` for each. Throws where a tensor lies outside of its storage.
  template <class F>
  void for_each_storage(const F& storage) {
    for (char op = take(1)[0]; op != '.'; op = take(1)[0]) {
      if (op != 'Q') {
        read(op);
        continue;
      }
      const Value asked = pop(1)[0];
      const std::vector<Item>& tuple = items_of(asked);
      TORCH_CHECK(tuple.size() == 5, as_torch_does_not);
      const auto element = element_of(as<ClassName>(tuple[1]));
      const auto elements = as<int64_t>(tuple[4]);
      TORCH_CHECK(element && elements >= 0, as_torch_does_not);
      const auto bytes = safe_product({element->bytes, elements}), held = safe_product({element->in_a_byte, elements});
      TORCH_CHECK(bytes && held, as_torch_does_not);
      storage(std::string(as<std::string_view>(tuple[2])), *bytes);
      push(Storage{*held});
    }
  }

 private:
  static constexpr const char* as_torch_does_not = "it names a storage as torch doesn't";

  template <class T>
  static const T& as(const Item& item) {
    const T* found = std::get_if<T>(&item);
    TORCH_CHECK(found, as_torch_does_not);
    return *found;
  }
  static const std::vector<Item>& items_of(const Value& value) {
    const Tuple* tuple = std::get_if<Tuple>(&value);
    TORCH_CHECK(tuple, as_torch_does_not);
    return **tuple;
  }

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

  std::string_view line() {
    const size_t end = rest_.find('\n');
    TORCH_CHECK(end != std::string_view::npos, "it ends within a pickle");
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }

  void push(Item item) { stack_.emplace_back(std::move(item)); }

  std::vector<Value> pop(size_t count) {
    TORCH_CHECK(count <= stack_.size(), takes_more_than_it_has);
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<Value> taken(first, stack_.end());
    stack_.erase(first, stack_.end());
    return taken;
  }
  std::vector<Value> pop_to_mark() {
    TORCH_CHECK(!marks_.empty() && marks_.back() <= stack_.size(), takes_more_than_it_has);
    const size_t mark = marks_.back();
    marks_.pop_back();
    return pop(stack_.size() - mark);
  }

  void keep(uint64_t place) {
    TORCH_CHECK(!stack_.empty(), takes_more_than_it_has);
    memo_[place] = stack_.back();
  }

  // What tuples hold of tuples is looked at here, and then no more.
  void push_tuple(const std::vector<Value>& values) {
    std::vector<Item> items;
    for (const Value& value : values) {
      const Item* item = std::get_if<Item>(&value);
      items.push_back(item ? *item : Item());
    }
    if (!items.empty() && std::holds_alternative<Storage>(items[0])) check_tensor(values);
    stack_.emplace_back(std::make_shared<const std::vector<Item>>(std::move(items)));
  }

  // (storage, offset, sizes, strides, ..)
  static void check_tensor(const std::vector<Value>& values) {
    TORCH_CHECK(values.size() > 3, as_torch_does_not);
    const auto integers = [](const Value& tuple) {
      std::vector<int64_t> found;
      for (const Item& item : items_of(tuple)) found.push_back(as<int64_t>(item));
      return found;
    };
    const auto sizes = integers(values[2]), strides = integers(values[3]);
    const auto* const offset = std::get_if<Item>(&values[1]);
    TORCH_CHECK(offset, as_torch_does_not);
    TORCH_CHECK(
        elements_within(std::get<Storage>(std::get<Item>(values[0])).elements, as<int64_t>(*offset), sizes, strides),
        "a tensor of ", at::IntArrayRef(sizes), " that its storage does not hold");
  }

  void read(char op) {
    switch (op) {
      case '\x80':
        take(1);
        return;
      case 'q':
        return keep(size(1));
      case 'r':
        return keep(size(4));
      case 'h':
        stack_.push_back(memo_[size(1)]);
        return;
      case 'j':
        stack_.push_back(memo_[size(4)]);
        return;
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
        return push(take(size(4)));
      case '\x8d':
        return push(take(size(8)));
      case 'c': {
        const std::string_view module = line();
        return push(ClassName{module, line()});
      }
      case 'G':
        take(8);
        return push({});
      case 'N':
      case '\x88':
      case '\x89':
      case ']':
      case '}':
        return push({});
      case '(':
        marks_.push_back(stack_.size());
        return;
      case ')':
        return push_tuple({});
      case '\x85':
      case '\x86':
      case '\x87':
        return push_tuple(pop(static_cast<size_t>(op - '\x84')));
      case 't':
        return push_tuple(pop_to_mark());
      case '\x81':  // the arguments of a class
      case 'a':
        pop(1);
        return;
      case 's':
        pop(2);
        return;
      case 'e':
      case 'u':
        pop_to_mark();
        return;
      case 'R':
      case 'b':
        pop(2);
        return push({});
      default:
        TORCH_CHECK(false, "a pickle that torch doesn't write");
    }
  }

  static constexpr const char* takes_more_than_it_has = "it takes more from its stack than that has";

  std::string_view rest_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;  // how many values were on the stack
  std::unordered_map<uint64_t, Value> memo_;
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
    if (const auto value = torch::jit::toIValue(node->output())) for_each_tensor(*value, check);
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

void check_tensors(const torch::jit::Module& module) {
  for_each_tensor(IValue(module._ivalue()), check);
  for (const auto& part : module.modules()) {
    for (const auto& method : part.get_methods()) {
      check_constants(*torch::jit::toGraphFunction(method.function()).graph()->block());
    }
  }
}

}  // namespace ipex::runtime
