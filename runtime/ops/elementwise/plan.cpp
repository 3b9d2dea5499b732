#include "ops/elementwise/plan.h"

#include <algorithm>
#include <numeric>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using Steps = c10::SmallVector<ProgramStep, 16>;

// What a program reads and does.
struct Part {
  at::ScalarType dtype;
  Tensors inputs;
  c10::SmallVector<std::optional<Affine>, 8> affines;
  Layouts layouts;  // of the inputs
  Steps steps;
  ValueNumbers kept;  // the steps that give results; the last one does
  Layout whole;       // of the results
};

constexpr int64_t elements_worth_a_thread = 16384;

ElementFormat format_of(at::ScalarType dtype, at::ScalarType program) {
  if (dtype == program) return ElementFormat::of_program;
  return dtype == at::kBFloat16 ? ElementFormat::bfloat16
         : dtype == at::kHalf   ? ElementFormat::float16
                                : ElementFormat::bytes;
}

// A program and the tensors of a call. What is outermost in the result comes first, and dimensions that every input takes as one are one.
class Call {
 public:
  explicit Call(const Part& part, const Summed* summed = nullptr) : result_(part.whole), kept_(part.kept) {
    const Layout& whole = part.whole;
    for (int64_t d = 0; d < whole.dimensions; ++d) {
      if (whole.sizes[static_cast<size_t>(d)] != 1) order_.push_back(d);
    }
    std::sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
      return whole.strides[static_cast<size_t>(a)] > whole.strides[static_cast<size_t>(b)];
    });
    if (summed) put_together(*summed);
    for (const Layout& layout : part.layouts) read_strides(layout);
    collapse();

    program_.elements = whole.elements();
    give_places(part.steps, static_cast<int64_t>(part.inputs.size()));
    if (!fits()) return;
    program_.block = summed ? block_of_sums() : block_size();
    for (size_t i = 0; i < part.inputs.size(); ++i) {
      ProgramInput& input = inputs_.emplace_back(
          ProgramInput{part.inputs[i].const_data_ptr(), spread_of(strides_[i]), strides_[i].data()});
      input.format = format_of(part.inputs[i].scalar_type(), part.dtype);
      if (part.inputs[i].scalar_type() == at::kBool) input.scale = 1;
      if (!part.affines[i]) continue;
      input.scale = static_cast<float>(part.affines[i]->scale);
      input.zero_point = static_cast<float>(part.affines[i]->zero_point);
    }
    program_.inputs = inputs_.data();
    program_.input_count = static_cast<int64_t>(inputs_.size());
    program_.sizes = sizes_.data();
    program_.dimensions = static_cast<int64_t>(sizes_.size());
  }

  bool fits() const { return program_.value_count <= Program::most_values; }

  // `as` says it of each result.
  Tensors run(at::ScalarType dtype, at::ArrayRef<StoredAs> as) {
    Tensors results;
    for (size_t i = 0; i < kept_.size(); ++i) {
      const std::optional<Affine>& affine = as[i].affine;
      const at::ScalarType own = affine ? at::kByte : as[i].dtype.value_or(dtype);
      results.push_back(new_result(own));
      ProgramResult& result = steps_[kept_[i]].kept;
      result = {results.back().mutable_data_ptr(), format_of(own, dtype)};
      if (!affine) continue;
      const AffineRounding rounding(*affine);
      result.inverse_scale = rounding.inverse_scale;
      result.zero_point = rounding.zero_point;
    }
    const ProgramKernels& kernels = runtime::kernels().programs;
    const auto compute = dtype == at::kFloat      ? kernels.floats
                         : dtype == at::kBFloat16 ? kernels.bfloat16
                                                  : kernels.float16;
    const int64_t blocks = (program_.elements + program_.block - 1) / program_.block;
    parallel_for(blocks, std::max<int64_t>(1, elements_worth_a_thread / program_.block),
                 [&](int64_t begin, int64_t end) { compute(program_, begin, end); });
    return results;
  }

  // Undefined where threads would have nothing to do.
  Tensor sum(at::ScalarType dtype, const Summed& summed) {
    const bool is_large = program_.elements > elements_worth_a_thread;
    const int64_t parts = is_large && dtype == at::kFloat ? parts_of_a_sum() : 1;
    if (is_large && parts == 1 && sums_.pieces(program_) < thread_count()) return {};
    const int64_t count = program_.elements / sums_.summed, inner = sums_.inner;
    Tensor result = empty_result(at::IntArrayRef(count), dtype), sums_of_parts = result;
    if (parts > 1) {
      sums_.summed /= parts;
      sums_.divisor = 1;
      sums_of_parts = at::empty({count * parts}, result.options());
    }
    sums_.sums = sums_of_parts.mutable_data_ptr();
    const int64_t pieces = sums_.pieces(program_);
    const ProgramSumKernels& kernels = runtime::kernels().program_sums;
    const auto compute = dtype == at::kFloat      ? kernels.floats
                         : dtype == at::kBFloat16 ? kernels.bfloat16
                                                  : kernels.float16;
    parallel_for(pieces, std::max<int64_t>(1, elements_worth_a_thread * pieces / program_.elements),
                 [&](int64_t begin, int64_t end) { compute(program_, sums_, begin, end); });
    if (parts > 1) {
      const float *from = sums_of_parts.const_data_ptr<float>(), divisor = divisor_;
      float* to = result.mutable_data_ptr<float>();
      for (int64_t first = 0; first < count; first += inner) {
        runtime::kernels().norms.sums.of_columns(from + first * parts, parts, inner, inner, to + first);
      }
      std::for_each(to, to + count, [&](float& sum) { sum /= divisor; });
    }
    at::DimVector kept;
    std::copy_if(order_.begin(), order_.end(), std::back_inserter(kept),
                 [&](int64_t d) { return !summed.dimensions[static_cast<size_t>(d)]; });
    return in_order_of_dimensions(result, result_.all_sizes(), kept, summed.dimensions, summed.keepdim);
  }

 private:
  // What is summed comes before the kept dimensions that lie innermost, or last where none do.
  void put_together(const Summed& summed) {
    const auto is_summed = [&](int64_t d) { return summed.dimensions[static_cast<size_t>(d)]; };
    const auto inner = std::find_if(order_.rbegin(), order_.rend(), is_summed).base();
    const auto first = std::stable_partition(order_.begin(), inner, [&](int64_t d) { return !is_summed(d); });
    const auto elements = [&](auto from, auto to) {
      return std::accumulate(from, to, int64_t{1},
                             [&](int64_t n, int64_t d) { return n * result_.sizes[static_cast<size_t>(d)]; });
    };
    sums_.summed = elements(first, inner);
    sums_.inner = elements(inner, order_.end());
    sums_.divisor = divisor_ = summed.is_mean ? static_cast<float>(sums_.summed) : 1.F;
  }

  // Into how many parts of whole rows each sum is cut where there are few sums, however many threads there are: its bits depend on it. 1
  // where it can't be.
  int64_t parts_of_a_sum() const {
    constexpr int64_t most = 64, enough = 16;
    const int64_t row = sizes_.back(), pieces = sums_.pieces(program_);
    if (pieces >= enough || sums_.inner == 1) return 1;
    for (int64_t parts = 2; parts <= most; ++parts) {
      const int64_t elements = sums_.summed / parts * sums_.inner;
      const bool keeps_rows = row > program_.block || elements % row == 0;
      if (sums_.summed % parts == 0 && keeps_rows && pieces * parts >= enough) return parts;
    }
    return 1;
  }

  Tensor new_result(at::ScalarType dtype) const {
    const bool is_as_new = result_.is_as_new();
    Tensor result = empty_result(is_as_new ? result_.all_sizes() : at::IntArrayRef(program_.elements), dtype);
    if (!is_as_new) result.unsafeGetTensorImpl()->set_sizes_and_strides(result_.all_sizes(), result_.all_strides());
    return result;
  }

  using Strides = c10::SmallVector<int64_t, Layout::most_dimensions>;

  void read_strides(const Layout& input) {
    Strides& strides = strides_.emplace_back();
    const int64_t missing = result_.dimensions - input.dimensions;
    for (const int64_t d : order_) {
      const int64_t own = d - missing;
      const bool repeats = own < 0 || input.sizes[static_cast<size_t>(own)] == 1;
      strides.push_back(repeats ? 0 : input.strides[static_cast<size_t>(own)]);
      if (strides_.size() == 1) sizes_.push_back(result_.sizes[static_cast<size_t>(d)]);
    }
    if (order_.empty()) {
      strides.push_back(0);
      if (strides_.size() == 1) sizes_.push_back(1);
    }
  }

  void collapse() {
    size_t last = 0;
    for (size_t d = 1; d < sizes_.size(); ++d) {
      const bool is_one =
          std::all_of(strides_.begin(), strides_.end(), [&](const Strides& s) { return s[last] == s[d] * sizes_[d]; });
      if (is_one) {
        sizes_[last] *= sizes_[d];
      } else {
        sizes_[++last] = sizes_[d];
      }
      for (Strides& s : strides_) s[last] = s[d];
    }
    sizes_.resize(last + 1);
    for (Strides& s : strides_) s.resize(last + 1);
  }

  // A place for each result, which the next one takes when nobody reads it any more.
  void give_places(const Steps& steps, int64_t inputs) {
    const size_t count = steps.size(), first = static_cast<size_t>(inputs);
    c10::SmallVector<size_t, 16> last_reader(count, 0);
    for (size_t i = 0; i < count; ++i) {
      for (const int value : {steps[i].y, steps[i].other, steps[i].third}) {
        if (value >= inputs) last_reader[static_cast<size_t>(value) - first] = i;
      }
    }
    c10::SmallVector<int, 16> place(count);
    c10::SmallVector<int, 8> unused;
    int next = static_cast<int>(inputs);
    for (size_t i = 0; i < count; ++i) {
      ProgramStep step = steps[i];
      const int own[3] = {step.y, step.other, step.third};
      const auto place_of = [&](int value) {
        return value < inputs ? value : place[static_cast<size_t>(value) - first];
      };
      step.y = place_of(step.y);
      step.other = place_of(step.other);
      step.third = place_of(step.third);
      // A step may write where it reads: it does so element by element.
      for (size_t v = 0; v < 3; ++v) {
        const bool is_new = std::find(own, own + v, own[v]) == own + v;
        if (is_new && own[v] >= inputs && last_reader[static_cast<size_t>(own[v]) - first] == i)
          unused.push_back(place_of(own[v]));
      }
      place[i] = unused.empty() ? next++ : unused.pop_back_val();
      step.result = place[i];
      steps_.push_back(step);
    }
    program_.steps = steps_.data();
    program_.step_count = static_cast<int64_t>(count);
    program_.value_count = next;
  }

  // As many elements as fit; whole rows, or equal parts of one, so that what is the same for each row stays where it is.
  int64_t block_size() const { return block_of_rows(sizes_.back(), program_.elements); }

  // Of what is summed at most all for some sums.
  int64_t block_of_sums() const {
    return sums_.inner > 1 ? block_of_rows(sums_.inner, sums_.inner * sums_.summed)
                           : block_of_rows(sums_.summed, program_.elements);
  }

  int64_t block_of_rows(int64_t row, int64_t elements) const {
    constexpr int64_t most = 1024, least = 256;
    const int64_t room = std::min(most, Program::block_floats / program_.value_count / 64 * 64);
    if (row <= room) return std::min(elements, room / row * row);
    for (int64_t parts = (row + room - 1) / room; row / parts >= least; ++parts) {
      if (row % parts == 0) return row / parts;
    }
    return room;
  }

  InputSpread spread_of(const Strides& strides) const {
    const size_t inner = strides.size() - 1;
    const bool is_a_row = std::all_of(strides.begin(), strides.end() - 1, [](int64_t stride) { return stride == 0; });
    if (is_a_row && (strides[inner] == 0 || program_.block % sizes_.back() == 0)) return InputSpread::same_block;
    int64_t dense = 1;
    for (size_t d = inner + 1; d-- > 0;) {
      if (strides[d] != dense) return InputSpread::strided;
      dense *= sizes_[d];
    }
    return InputSpread::as_result;
  }

  const Layout& result_;
  const ValueNumbers& kept_;
  c10::SmallVector<int64_t, Layout::most_dimensions> order_;  // of the dimensions of the result
  Program program_;
  ProgramSums sums_;
  float divisor_ = 1;
  c10::SmallVector<int64_t, Layout::most_dimensions> sizes_;
  c10::SmallVector<Strides, 8> strides_;
  c10::SmallVector<ProgramInput, 8> inputs_;
  Steps steps_;
};

// Computes the results of some steps. Those that lie alike are results of one program.
class Plan {
 public:
  Plan(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps, const Layouts& layouts,
       const ValueNumbers& results, const Ports& ports)
      : inputs_(inputs),
        dtype_(dtype),
        steps_(steps),
        layouts_(layouts),
        results_(results),
        ports_(ports),
        computed_(layouts.size()) {}

  // Empty where there is no such program.
  std::vector<Tensor> run() {
    std::vector<Tensor> found;
    for (const size_t result : results_) {
      found.push_back(value(result));
      if (!found.back().defined()) return {};
    }
    return found;
  }

  Tensor sum(const Summed& summed) {
    const auto part = part_of(results_);
    if (!part) return {};
    Call call(*part, &summed);
    return call.fits() ? call.sum(dtype_, summed) : Tensor();
  }

 private:
  const NamedStep& step_of(size_t value) const { return steps_[value - inputs_.size()]; }

  const Tensor& value(size_t root) {
    if (root < inputs_.size()) return inputs_[root];
    if (!computed_[root].defined()) compute(alike(root));
    return computed_[root];
  }

  StoredAs stored_as(size_t root) const {
    const auto result = std::find(results_.begin(), results_.end(), root);
    return result == results_.end() ? StoredAs() : ports_.stored_as(static_cast<size_t>(result - results_.begin()));
  }

  // The value, and where it is a result all those that lie as it does, in their order.
  ValueNumbers alike(size_t root) const {
    if (std::find(results_.begin(), results_.end(), root) == results_.end()) return {root};
    ValueNumbers found;
    for (const size_t result : results_) {
      const bool lies_alike = layouts_[result].all_sizes() == layouts_[root].all_sizes() &&
                              layouts_[result].all_strides() == layouts_[root].all_strides();
      if (lies_alike) found.push_back(result);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  void compute(const ValueNumbers& roots) {
    const auto part = part_of(roots);
    if (!part) return;
    Call call(*part);
    if (!call.fits()) return;
    c10::SmallVector<StoredAs, 4> as;
    for (const size_t root : roots) as.push_back(stored_as(root));
    const Tensors results = call.run(dtype_, as);
    for (size_t i = 0; i < roots.size(); ++i) computed_[roots[i]] = results[i];
  }

  // A program that gives the roots. None where there is none for one of another size, whose result it reads.
  std::optional<Part> part_of(const ValueNumbers& roots) {
    const size_t last = roots.back();
    const int64_t elements = layouts_[last].elements();
    // What the roots need: values of their size are steps of this program, others inputs.
    c10::SmallVector<char, 32> is_needed(last + 1, 0), is_step(last + 1, 0);
    for (const size_t root : roots) is_needed[root] = 1;
    for (size_t v = last; v >= inputs_.size(); --v) {
      if (!is_needed[v] || layouts_[v].elements() != elements) continue;
      is_step[v] = 1;
      for (int i = 0; i < 3; ++i) is_needed[step_of(v).operand(i)] = 1;
    }
    std::optional<Part> found(std::in_place);
    Part& part = *found;
    part.dtype = dtype_;
    part.whole = layouts_[last];
    c10::SmallVector<int, 32> numbers(last + 1, 0);
    for (size_t v = 0; v < last; ++v) {
      if (!is_needed[v] || is_step[v]) continue;
      Tensor input = value(v);
      const StoredAs as = stored_as(v);
      if (!input.defined() || as.affine || as.dtype) return std::nullopt;
      numbers[v] = static_cast<int>(part.inputs.size());
      part.inputs.push_back(std::move(input));
      part.affines.push_back(v < inputs_.size() ? ports_.affine(v) : std::nullopt);
      part.layouts.push_back(layouts_[v]);
    }
    for (size_t v = inputs_.size(); v <= last; ++v) {
      if (!is_step[v]) continue;
      ProgramStep step = step_of(v).program;
      step.y = numbers[static_cast<size_t>(step.y)];
      step.other = numbers[static_cast<size_t>(step.other)];
      step.third = numbers[static_cast<size_t>(step.third)];
      step.result = numbers[v] = static_cast<int>(part.inputs.size() + part.steps.size());
      if (std::find(roots.begin(), roots.end(), v) != roots.end()) part.kept.push_back(part.steps.size());
      part.steps.push_back(step);
    }
    return found;
  }

  at::TensorList inputs_;
  at::ScalarType dtype_;
  const NamedSteps& steps_;
  const Layouts& layouts_;
  const ValueNumbers& results_;
  const Ports& ports_;
  c10::SmallVector<Tensor, 32> computed_;
};

}  // namespace

std::vector<Tensor> run_steps(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps,
                              const Layouts& layouts, const ValueNumbers& results, const Ports& ports) {
  return Plan(inputs, dtype, steps, layouts, results, ports).run();
}

Tensor sum_of_steps(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps, const Layouts& layouts,
                    const Summed& summed, const Ports& ports) {
  const ValueNumbers last{layouts.size() - 1};
  return Plan(inputs, dtype, steps, layouts, last, ports).sum(summed);
}

}  // namespace ipex::runtime
