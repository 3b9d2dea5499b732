#include "ops/training/trained_parameters.h"

#include <algorithm>

#include "packed/call_conditions.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// Pieces don't depend on the number of threads, so neither do norms, which are summed piece by piece.
constexpr int64_t piece_size = 32768;
// What it costs to begin a piece, in elements.
constexpr int64_t piece_overhead = 256;

// Whether its memory holds its elements.
bool is_plain_on(at::Device device, const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device() == device && !tensor.is_inference() && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor.key_set().has(c10::DispatchKey::Python) &&
         (!tensor.is_cpu() || has_all_its_memory(tensor));
}

std::optional<WeightFormat> format_of(const at::Tensor& parameter, const at::Tensor& master) {
  const auto dtype = parameter.scalar_type();
  if (!master.defined()) return dtype == at::kFloat ? std::optional(WeightFormat::floats) : std::nullopt;
  if (dtype == at::kBFloat16 && master.scalar_type() == at::kShort) return WeightFormat::split;
  if (master.scalar_type() != at::kFloat) return std::nullopt;
  if (dtype == at::kBFloat16) return WeightFormat::bfloat16;
  if (dtype == at::kHalf) return WeightFormat::float16;
  return std::nullopt;
}

bool is_counter(const at::Tensor& step) {
  return is_plain_on(at::kCPU, step) && step.numel() == 1 &&
         (step.scalar_type() == at::kFloat || step.scalar_type() == at::kDouble);
}

bool is_taken(const TrainedParameter& one, at::Device device) {
  const at::Tensor &parameter = one.parameter, &gradient = one.gradient, &master = one.master;
  if (!is_plain_on(device, parameter) || !is_plain_on(device, gradient)) return false;
  if (!format_of(parameter, master)) return false;
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.sizes() != parameter.sizes()) return false;
  if (master.defined() && !(is_plain_on(device, master) && master.sizes() == parameter.sizes())) return false;
  if (one.step.defined() && !is_counter(one.step)) return false;
  return std::all_of(one.state.begin(), one.state.end(), [&](const at::Tensor& state) {
    return !state.defined() ||
           (is_plain_on(device, state) && state.scalar_type() == at::kFloat && state.sizes() == parameter.sizes());
  });
}

// A step streams more through the caches than these hold, so what a tensor is made of lies in memory again: the tensor, its
// storage, for a parameter its gradient. With thousands of small tensors it would take as long to wait for these, one by
// one, as to compute. So they are asked for some parameters ahead, each before what it leads to.
class MetadataPrefetch {
 public:
  explicit MetadataPrefetch(const std::vector<TrainedParameter>& all) : all_(all) {}

  void before(size_t i) const {
    if (const TrainedParameter* one = at(i + 24)) {
      for_each_tensor(*one, [](const at::Tensor& tensor) { fetch_tensor(tensor); });
    }
    if (const TrainedParameter* one = at(i + 16)) {
      for_each_tensor(*one, fetch_storage);
      __builtin_prefetch(autograd_of(one->parameter));
    }
    if (const TrainedParameter* one = at(i + 8)) {
      if (autograd_of(one->parameter)) fetch_tensor(one->parameter.grad());
      if (one->step.defined() && one->step.has_storage()) __builtin_prefetch(one->step.storage().data());
    }
    if (const TrainedParameter* one = at(i + 4)) {
      if (autograd_of(one->parameter)) fetch_storage(one->parameter.grad());
    }
  }

  static void fetch_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto* start = reinterpret_cast<const char*>(tensor.unsafeGetTensorImpl());
    for (size_t line = 0; line < sizeof(c10::TensorImpl); line += 64) __builtin_prefetch(start + line);
  }

 private:
  const TrainedParameter* at(size_t i) const { return i < all_.size() ? &all_[i] : nullptr; }

  static const c10::AutogradMetaInterface* autograd_of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->autograd_meta();
  }

  static void fetch_storage(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto* start =
        reinterpret_cast<const char*>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    __builtin_prefetch(start);
    __builtin_prefetch(start + 64);
  }

  template <typename Use>
  static void for_each_tensor(const TrainedParameter& one, Use&& use) {
    use(one.parameter);
    if (one.master.defined()) use(one.master);
    for (const at::Tensor& state : one.state) use(state);
    use(one.step);
  }

  const std::vector<TrainedParameter>& all_;
};

void set_version(const at::Tensor& tensor, int64_t version) {
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  counter.set_version(version);
}

// What somebody else wrote to the parameter is the weight from now on.
void follow_parameter(const TrainedParameter& one) {
  if (!one.master.defined() || one.master._version() == one.parameter._version()) return;
  if (one.master.scalar_type() == at::kShort) {
    one.master.zero_();
  } else {
    one.master.copy_(one.parameter);
  }
  set_version(one.master, one.parameter._version());
}

// Whether one index finds the same element in both.
bool has_layout_of(const at::Tensor& one, const at::Tensor& other) {
  return (one.is_contiguous() && other.is_contiguous()) ||
         (one.is_non_overlapping_and_dense() && one.strides() == other.strides());
}

}  // namespace

void TrainedParameter::expect_states(size_t count, bool has_step) const {
  const bool has_all =
      std::all_of(state.begin(), state.begin() + count, [](const at::Tensor& one) { return one.defined(); });
  TORCH_CHECK_VALUE(has_all && (step.defined() || !has_step), "ipex.TrainedParameters: expected ", count, " states",
                    has_step ? " and a step" : "", " for a parameter of ", parameter.sizes(),
                    ", got fewer. Load the state that belongs to this optimizer.");
}

double TrainedParameter::next_step() const {
  if (step.scalar_type() == at::kDouble) return *step.mutable_data_ptr<double>() += 1;
  return *step.mutable_data_ptr<float>() += 1;
}

TrainedParameters::TrainedParameters(std::vector<at::Tensor> parameters, const std::vector<int64_t>& groups,
                                     const c10::List<std::optional<at::Tensor>>& masters) {
  TORCH_CHECK_VALUE(groups.size() == parameters.size() && masters.size() == parameters.size(),
                    "ipex.TrainedParameters: expected a group and a master, or None, for each of ", parameters.size(),
                    " parameters, got ", groups.size(), " and ", masters.size(), ".");
  all_.resize(parameters.size());
  for (size_t i = 0; i < all_.size(); ++i) {
    all_[i].parameter = std::move(parameters[i]);
    all_[i].group = groups[i];
    all_[i].master = std::optional<at::Tensor>(masters[i]).value_or(at::Tensor());
  }
}

TrainedParameters::~TrainedParameters() = default;

void TrainedParameters::set_state(int64_t index, const std::vector<at::Tensor>& state, std::optional<at::Tensor> step,
                                  bool starts) {
  TrainedParameter& one = all_.at(static_cast<size_t>(index));
  TORCH_CHECK_VALUE(state.size() <= one.state.size(),
                    "ipex.TrainedParameters.set_state: expected at most 3 tensors, got ", state.size(), ".");
  one.state = {};
  std::copy(state.begin(), state.end(), one.state.begin());
  one.step = std::move(step).value_or(at::Tensor());
  one.has_state = true;
  one.starts = starts;
  one.is_checked = false;
}

std::tuple<std::vector<int64_t>, std::vector<int64_t>> TrainedParameters::collect(at::Device device) {
  collected_.clear();
  std::vector<int64_t> lacking, left;
  const MetadataPrefetch prefetch(all_);
  for (size_t i = 0; i < all_.size(); ++i) {
    prefetch.before(i);
    TrainedParameter& one = all_[i];
    one.gradient = one.parameter.grad();
    if (!one.gradient.defined()) continue;
    const auto index = static_cast<int64_t>(i);
    one.is_checked = is_taken(one, device);
    if (!one.is_checked) {
      one.gradient.reset();
      left.push_back(index);
      continue;
    }
    follow_parameter(one);
    if (!one.has_state) lacking.push_back(index);
    collected_.push_back(index);
  }
  return {lacking, left};
}

Update::Update(TrainedParameters& parameters) : parameters_(parameters) {
  const at::NoGradGuard no_gradients;
  const size_t count = parameters.collected_.size();
  ranges_.reserve(count);
  pieces_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const TrainedParameter& one = (*this)[i];
    TORCH_CHECK_VALUE(one.has_state,
                      "ipex.TrainedParameters: expected a state for every collected parameter, got none for ",
                      parameters.collected_[i], ". Call set_state.");
    TORCH_CHECK_VALUE(one.is_checked || is_taken(one, one.parameter.device()),
                      "ipex.TrainedParameters: expected states of the size, the device and the kind of parameter ",
                      parameters.collected_[i], ", ", one.parameter.toString(), " ", one.parameter.sizes(),
                      ", got others. Load the state that belongs to this model.");
    bool is_dense = one.parameter.is_non_overlapping_and_dense();
    for (const at::Tensor& state : one.state) {
      is_dense = is_dense && (!state.defined() || has_layout_of(state, one.parameter));
    }
    if (one.master.defined()) is_dense = is_dense && has_layout_of(one.master, one.parameter);

    // What is written, where it lies if everything lies alike, else contiguous.
    const auto memory_of = [&](const at::Tensor& tensor) -> void* {
      if (!tensor.defined() || is_dense || tensor.is_contiguous()) {
        return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
      }
      copies_.push_back(tensor.contiguous());
      to_write_back_.emplace_back(tensor, copies_.back());
      return copies_.back().mutable_data_ptr();
    };
    at::Tensor gradient = one.gradient;
    if (!(is_dense ? has_layout_of(gradient, one.parameter) : gradient.is_contiguous())) {
      gradient = is_dense ? at::empty_like(one.parameter).copy_(gradient) : gradient.contiguous();
      copies_.push_back(gradient);
    }
    UpdateRange range{*format_of(one.parameter, one.master),
                      memory_of(one.parameter),
                      memory_of(one.master),
                      gradient.const_data_ptr(),
                      {},
                      0,
                      one.parameter.numel()};
    one.parameter.unsafeGetTensorImpl()->bump_version();
    if (one.master.defined()) set_version(one.master, one.parameter._version());
    for (size_t s = 0; s < one.state.size(); ++s) range.state[s] = static_cast<float*>(memory_of(one.state[s]));
    ranges_.push_back(range);
    for (int64_t first = 0; first < range.count; first += piece_size) {
      pieces_.push_back({i, first, std::min(piece_size, range.count - first)});
    }
  }
}

void Update::finish() {
  const at::NoGradGuard no_gradients;
  for (const auto& [to, from] : to_write_back_) to.copy_(from);
  for (size_t i = 0; i < size(); ++i) {
    if (i + 16 < size()) MetadataPrefetch::fetch_tensor((*this)[i + 16].gradient);
    TrainedParameter& one = (*this)[i];
    if (one.master.defined() && !to_write_back_.empty()) set_version(one.master, one.parameter._version());
    one.gradient.reset();
    one.starts = false;
  }
  parameters_.collected_.clear();
}

UpdateRange Update::range_of(const Piece& piece) const {
  UpdateRange range = ranges_[piece.parameter];
  range.first = piece.first;
  range.count = piece.count;
  return range;
}

// Each thread takes as many elements as the others, from pieces that are neighbours.
void Update::for_each(const std::vector<Piece>& pieces, const std::function<void(size_t)>& call) const {
  std::vector<int64_t> begins;  // in elements
  begins.reserve(pieces.size());
  int64_t total = 0;
  for (const Piece& piece : pieces) {
    begins.push_back(total);
    total += piece.count + piece_overhead;
  }
  const int64_t threads = std::min<int64_t>(thread_count(), 1 + total / piece_size);
  const auto first_of = [&](int64_t thread) {
    return static_cast<size_t>(std::lower_bound(begins.begin(), begins.end(), total * thread / threads) -
                               begins.begin());
  };
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    const size_t last = end == threads ? pieces.size() : first_of(end);
    for (size_t i = first_of(begin); i < last; ++i) call(i);
  });
}

void Update::for_each_piece(const std::function<void(size_t, const UpdateRange&)>& step) const {
  for_each(pieces_, [&](size_t i) { step(pieces_[i].parameter, range_of(pieces_[i])); });
}

void Update::for_each_piece(const Norms& norms, const Weight& weight) const {
  const auto is_whole = [&](const Piece& piece) { return piece.count == ranges_[piece.parameter].count; };
  std::vector<SquaredNorms> of_piece(pieces_.size());
  for_each(pieces_, [&](size_t i) {
    const Piece& piece = pieces_[i];
    const UpdateRange range = range_of(piece);
    of_piece[i] = norms(piece.parameter, range);
    if (is_whole(piece)) weight(piece.parameter, range, of_piece[i]);
  });

  std::vector<Piece> rest;
  std::vector<SquaredNorms> sums(size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (is_whole(pieces_[i])) continue;
    rest.push_back(pieces_[i]);
    sums[pieces_[i].parameter].weight += of_piece[i].weight;
    sums[pieces_[i].parameter].update += of_piece[i].update;
  }
  if (rest.empty()) return;
  for_each(rest, [&](size_t i) { weight(rest[i].parameter, range_of(rest[i]), sums[rest[i].parameter]); });
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.class_<TrainedParameters>("TrainedParameters")
      .def(torch::init<std::vector<at::Tensor>, const std::vector<int64_t>&,
                       const c10::List<std::optional<at::Tensor>>&>())
      .def("set_state", &TrainedParameters::set_state)
      .def("collect", &TrainedParameters::collect)
      .def("sgd", &TrainedParameters::sgd)
      .def("adagrad", &TrainedParameters::adagrad)
      .def("adam", &TrainedParameters::adam)
      .def("lamb", &TrainedParameters::lamb)
      .def("lars", &TrainedParameters::lars)
      .def("begin_on_device", &TrainedParameters::begin_on_device)
      .def("finish_on_device", &TrainedParameters::finish_on_device);
}

}  // namespace ipex::runtime
