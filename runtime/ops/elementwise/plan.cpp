#include "ops/elementwise/plan.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using Steps = c10::SmallVector<ProgramStep, 16>;
using Tensors = c10::SmallVector<Tensor, 4>;

// A program and the tensors of a call. What is outermost in the result comes first, and dimensions that every input takes as one are one.
class Call {
 public:
  // `layouts` are those of the inputs. `kept` says which steps give results; the last one does.
  Call(at::TensorList inputs, const OptionalAffines& affines, const Layouts& layouts, const Steps& steps,
       const ValueNumbers& kept, const Layout& whole)
      : result_(whole), kept_(kept) {
    std::array<size_t, Layout::most_dimensions> order;
    size_t dimensions = 0;
    for (int64_t d = 0; d < whole.dimensions; ++d) {
      if (whole.sizes[static_cast<size_t>(d)] != 1) order[dimensions++] = static_cast<size_t>(d);
    }
    std::sort(order.begin(), order.begin() + dimensions,
              [&](size_t a, size_t b) { return whole.strides[a] > whole.strides[b]; });
    for (size_t i = 0; i < inputs.size(); ++i) read_strides(layouts[i], whole, order, dimensions);
    collapse();

    program_.elements = whole.elements();
    give_places(steps, static_cast<int64_t>(inputs.size()));
    if (!fits()) return;
    program_.block = block_size();
    for (size_t i = 0; i < inputs.size(); ++i) {
      ProgramInput& input =
          inputs_.emplace_back(ProgramInput{inputs[i].const_data_ptr(), spread_of(strides_[i]), strides_[i].data()});
      if (inputs[i].scalar_type() == at::kBool) input.scale = 1;
      if (!affines[i]) continue;
      input.scale = static_cast<float>(affines[i]->scale);
      input.zero_point = static_cast<float>(affines[i]->zero_point);
    }
    program_.inputs = inputs_.data();
    program_.input_count = static_cast<int64_t>(inputs_.size());
    program_.sizes = sizes_.data();
    program_.dimensions = static_cast<int64_t>(sizes_.size());
  }

  bool fits() const { return program_.value_count <= Program::most_values; }

  // With an affine there is one result, of bytes.
  Tensors run(at::ScalarType dtype, const std::optional<Affine>& affine) {
    Tensors results;
    for (const size_t step : kept_) {
      results.push_back(new_result(affine ? at::kByte : dtype));
      if (!affine) steps_[step].kept = results.back().mutable_data_ptr();
    }
    if (affine) {
      const AffineRounding rounding(*affine);
      program_.bytes = results[0].mutable_data_ptr<uint8_t>();
      program_.inverse_scale = rounding.inverse_scale;
      program_.zero_point = rounding.zero_point;
    }
    const ProgramKernels& kernels = runtime::kernels().programs;
    const auto compute = dtype == at::kFloat      ? kernels.floats
                         : dtype == at::kBFloat16 ? kernels.bfloat16
                                                  : kernels.float16;
    constexpr int64_t elements_worth_a_thread = 16384;
    const int64_t blocks = (program_.elements + program_.block - 1) / program_.block;
    at::parallel_for(0, blocks, std::max<int64_t>(1, elements_worth_a_thread / program_.block),
                     [&](int64_t begin, int64_t end) { compute(program_, begin, end); });
    return results;
  }

 private:
  Tensor new_result(at::ScalarType dtype) const {
    const bool is_as_new = result_.is_as_new();
    Tensor result = empty_result(is_as_new ? result_.all_sizes() : at::IntArrayRef(program_.elements), dtype);
    if (!is_as_new) result.unsafeGetTensorImpl()->set_sizes_and_strides(result_.all_sizes(), result_.all_strides());
    return result;
  }

  using Strides = c10::SmallVector<int64_t, Layout::most_dimensions>;

  void read_strides(const Layout& input, const Layout& whole, const auto& order, size_t dimensions) {
    Strides& strides = strides_.emplace_back();
    const int64_t missing = whole.dimensions - input.dimensions;
    for (size_t i = 0; i < dimensions; ++i) {
      const int64_t own = static_cast<int64_t>(order[i]) - missing;
      const bool repeats = own < 0 || input.sizes[static_cast<size_t>(own)] == 1;
      strides.push_back(repeats ? 0 : input.strides[static_cast<size_t>(own)]);
      if (strides_.size() == 1) sizes_.push_back(whole.sizes[order[i]]);
    }
    if (dimensions == 0) {
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
  int64_t block_size() const {
    constexpr int64_t most = 1024, least = 256;
    const int64_t room = std::min(most, Program::block_floats / program_.value_count / 64 * 64), row = sizes_.back();
    if (row <= room) return std::min(program_.elements, room / row * row);
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
  Program program_;
  c10::SmallVector<int64_t, Layout::most_dimensions> sizes_;
  c10::SmallVector<Strides, 8> strides_;
  c10::SmallVector<ProgramInput, 8> inputs_;
  Steps steps_;
};

// Computes the results of some steps. Those that lie alike are results of one program.
class Plan {
 public:
  Plan(at::TensorList inputs, at::ScalarType dtype, const OptionalAffines& affines, const NamedSteps& steps,
       const Layouts& layouts, const ValueNumbers& results)
      : inputs_(inputs),
        dtype_(dtype),
        affines_(affines),
        steps_(steps),
        layouts_(layouts),
        results_(results),
        computed_(layouts.size()) {}

  // Empty where a program would have too many values.
  std::vector<Tensor> run(const std::optional<Affine>& affine) {
    std::vector<Tensor> found;
    for (const size_t result : results_) {
      found.push_back(value(result, affine));
      if (!found.back().defined()) return {};
    }
    return found;
  }

 private:
  const NamedStep& step_of(size_t value) const { return steps_[value - inputs_.size()]; }

  const Tensor& value(size_t root, const std::optional<Affine>& affine = std::nullopt) {
    if (root < inputs_.size()) return inputs_[root];
    if (!computed_[root].defined()) compute(alike(root), affine);
    return computed_[root];
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

  void compute(const ValueNumbers& roots, const std::optional<Affine>& affine) {
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
    c10::SmallVector<Tensor, 8> inputs;
    OptionalAffines affines;
    Layouts layouts;
    c10::SmallVector<int, 32> numbers(last + 1, 0);
    for (size_t v = 0; v < last; ++v) {
      if (!is_needed[v] || is_step[v]) continue;
      Tensor input = value(v);
      if (!input.defined()) return;
      numbers[v] = static_cast<int>(inputs.size());
      inputs.push_back(std::move(input));
      affines.push_back(v < affines_.size() ? affines_[v] : std::nullopt);
      layouts.push_back(layouts_[v]);
    }
    Steps steps;
    ValueNumbers kept;
    for (size_t v = inputs_.size(); v <= last; ++v) {
      if (!is_step[v]) continue;
      ProgramStep step = step_of(v).program;
      step.y = numbers[static_cast<size_t>(step.y)];
      step.other = numbers[static_cast<size_t>(step.other)];
      step.third = numbers[static_cast<size_t>(step.third)];
      step.result = numbers[v] = static_cast<int>(inputs.size() + steps.size());
      if (std::find(roots.begin(), roots.end(), v) != roots.end()) kept.push_back(steps.size());
      steps.push_back(step);
    }
    Call call(inputs, affines, layouts, steps, kept, layouts_[last]);
    if (!call.fits()) return;
    const Tensors results = call.run(dtype_, affine);
    for (size_t i = 0; i < roots.size(); ++i) computed_[roots[i]] = results[i];
  }

  at::TensorList inputs_;
  at::ScalarType dtype_;
  const OptionalAffines& affines_;
  const NamedSteps& steps_;
  const Layouts& layouts_;
  const ValueNumbers& results_;
  c10::SmallVector<Tensor, 32> computed_;
};

}  // namespace

std::vector<Tensor> run_steps(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps,
                              const Layouts& layouts, const ValueNumbers& results, const std::optional<Affine>& affine,
                              const OptionalAffines& of_inputs) {
  return Plan(inputs, dtype, of_inputs, steps, layouts, results).run(affine);
}

}  // namespace ipex::runtime
