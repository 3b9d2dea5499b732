// fuse_sampled_sum: the samples of some images, weighted and summed, are one op, which holds no sample.
//
//   before   %a = aten::grid_sampler(%x, %g, ..)    %b = aten::grid_sampler(%x2, %g2, ..)
//            %c = aten::stack([%a, %b], -2)         %f = aten::flatten(%c, -2, -1)
//            %m = aten::mul(%f, %weights)           %y = aten::sum(%m, [-1])
//   after    %y = ipex::sampled_sum([%x, %x2], [%g, %g2], %weights, .., %stacked=1)
//
// So deformable attention reads a few places of images of several sizes. aten::cat(.., -1) does for stack and flatten.
// Declines where somebody else reads a sample, where the samplers differ, and where memory is overwritten in between.
#include <algorithm>

#include "ir/constants.h"
#include "ir/lists.h"
#include "ir/motion.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool are_samples_of_its_own(const Value* list) {
  static const OpName sampler("aten::grid_sampler");
  const auto samples = own_elements_of(list);
  if (!samples || samples->empty()) return false;
  const Node *joins = list->uses()[0].user, *first = samples->front()->node();
  return std::all_of(samples->begin(), samples->end(), [&](const Value* sample) {
    const Node* node = sample->node();
    if (!sampler.is_of(node) || sample->uses().size() != 1) return false;
    for (size_t option = 2; option < 5; ++option) {
      if (node->input(option) != first->input(option)) return false;
    }
    return can_wait(node, joins);
  });
}

bool is_last_dimension(const Value* value) { return is_list_of(value, {-1}); }

Spelling sum_of(const std::string& joined) {
  return Spelling(joined + "%m = aten::mul(%f, %weights)\n%y = aten::sum(%m, %dimensions, %keep, %dtype)")
      .declines_unless("samples", are_samples_of_its_own, "it sums no samples, or others read them")
      .declines_unless("dimensions", is_last_dimension, "it does not sum over the last dimension")
      .declines_unless("keep", is_false, "it keeps the dimension")
      .declines_unless("dtype", is_none, "it sums in another dtype");
}

Node* build(const Match& match, bool stacked) {
  Node* const samples = match["samples"]->node();
  Graph* graph = samples->owningGraph();
  std::vector<Value*> images, grids;
  for (const Value* sample : samples->inputs()) {
    images.push_back(const_cast<Node*>(sample->node())->input(0));
    grids.push_back(const_cast<Node*>(sample->node())->input(1));
  }
  const auto list = [&](const std::vector<Value*>& values) {
    return graph->insertNode(graph->createList(c10::TensorType::get(), values))->output();
  };
  Node* sampler = samples->input(0)->node();
  Value* image_list = list(images);
  return graph->insertNode(graph->create(Symbol::fromQualString("ipex::sampled_sum"),
                                         {image_list, list(grids), match["weights"], sampler->input(2),
                                          sampler->input(3), sampler->input(4), graph->insertConstant(stacked)}));
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      sum_of("%s = aten::stack(%samples, %dim)\n%f = aten::flatten(%s, %start, %end)\n")
          .declines_unless("dim", equals(-2), "it does not stack rows")
          .declines_unless("start", equals(-2), "it does not join rows")
          .declines_unless("end", equals(-1), "it does not join rows")
          .becomes("ipex::sampled_sum", [](const Match& match) { return build(match, /*stacked=*/true); }),
      sum_of("%f = aten::cat(%samples, %dim)\n")
          .declines_unless("dim", equals(-1), "it does not join rows")
          .becomes("ipex::sampled_sum", [](const Match& match) { return build(match, /*stacked=*/false); })};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass fuse_sampled_sum() { return {"fuse_sampled_sum", run, needs(lists_are_values, aten_names)}; }

}  // namespace ipex::passes
