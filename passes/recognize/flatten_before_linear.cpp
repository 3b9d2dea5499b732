// flatten_before_linear: a linear whose flattened result is normalised gets flattened rows, so that its packed op can take
// the batch_norm.
//
//   before   %y = aten::linear(%x, %weight, %bias)    %f = aten::flatten(%y, 0, 1)
//            %n = aten::batch_norm(%f, ..)            %z = aten::reshape_as(%n, %y)
//   after    %f = aten::flatten(%x, 0, 1)             %y = aten::linear(%f, %weight, %bias)
//            %n = aten::batch_norm(%y, ..)            %z = aten::unflatten(%n, 0, [size(%x, 0), size(%x, 1)])
//
// LeViT's layers are written so. Declines when somebody else reads %y, be it for its size.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

Node* build(const Match& match) {
  Node* last = match.last();
  Graph& graph = *last->owningGraph();
  const auto insert = [&](const char* op, at::ArrayRef<Value*> inputs) {
    Node* made = graph.insertNode(graph.create(Symbol::fromQualString(op), inputs));
    made->setScope(last->scope());
    return made;
  };
  Value *x = match["x"], *first = match["zero"], *second = match["one"];
  Value* rows = insert("aten::flatten", {x, first, second})->output();
  Value* y = insert("aten::linear", {rows, match["weight"], match["bias"]})->output();
  std::vector<Value*> norm{y};
  for (const char* name : {"gamma", "beta", "mean", "variance", "training", "momentum", "eps", "cudnn"}) {
    norm.push_back(match[name]);
  }
  Value* sizes[2];
  for (const size_t i : {0, 1}) {
    sizes[i] = insert("aten::size", {x, i == 0 ? first : second})->output();
    sizes[i]->setType(c10::IntType::get());
  }
  Value* normalized = insert("aten::batch_norm", norm)->output();
  Value* list = graph.insertNode(graph.createList(c10::IntType::get(), sizes))->output();
  return insert("aten::unflatten", {normalized, first, list});
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::linear(%x, %weight, %bias)\n"
               "%f = aten::flatten(%y, %zero, %one)\n"
               "%n = aten::batch_norm(%f, %gamma, %beta, %mean, %variance, %training, %momentum, %eps, %cudnn)\n"
               "%z = aten::reshape_as(%n, %y)")
          .declines_unless("zero", equals(0), "it does not flatten the first two dimensions")
          .declines_unless("one", equals(1), "it does not flatten the first two dimensions")
          .becomes("a batch_norm of flattened rows", build)};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass flatten_before_linear() { return {"flatten_before_linear", run, needs(aten_layers, one_linear_pattern)}; }

}  // namespace ipex::passes
