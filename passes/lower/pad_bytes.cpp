// pad_bytes: padding that follows from the size of the image is done by the convolution of 8-bit numbers that reads it.
//
//   before   %p = aten::pad(%x, %widths, "constant", 0)    %q = ipex::quantize(%p, %scale, %zero_point)
//            %y = ipex::quantized_convolution_run(%q, %packed, %operands, %layout)
//   after    %q = ipex::quantize(%x, %scale, %zero_point)
//            %y = ipex::quantized_convolution_run(%q, %packed, %operands, %layout, %widths)
//
// Zero is a number without error, so numbers are the same before and after padding. Whoever makes %x can
// then give its numbers. The padded image may become channels-last before it is rounded, as the first one of a network does.
// Declines when the padding is not zeros; when somebody needs the padded image, in floats or for
// another op; and before transposed convolutions, whose padding cuts off.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/pads.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

std::optional<std::string> reason_against_reader(const Node* reader, const Value* numbers) {
  static const OpName run("ipex::quantized_convolution_run");
  if (!run.is_of(reader) || reader->input(0) != numbers) return "another op needs the padded numbers";
  if (uses_ports(reader)) return "the convolution pads already";
  const Node* prepack = reader->input(1)->node();
  if (!is_prepack(prepack)) return "the convolution is packed already";
  if (is_true(prepack->namedInput("transposed"))) return "the convolution is transposed";
  return std::nullopt;
}

// Those who read the padded image, in whichever layout.
std::vector<Use> readers_of(const Node* pad) {
  static const OpName to_channels_last("ipex::to_channels_last");
  std::vector<Use> readers;
  for (const Use& use : pad->output()->uses()) {
    const bool is_converted = use.offset == 0 && to_channels_last.is_of(use.user);
    const auto& own = use.user->outputs();
    if (is_converted) {
      readers.insert(readers.end(), own[0]->uses().begin(), own[0]->uses().end());
    } else {
      readers.push_back(use);
    }
  }
  return readers;
}

std::optional<std::string> reason_against(const Node* pad) {
  static const OpName quantize("ipex::quantize");
  if (pad->hasNamedInput("mode") && toIValue(pad->namedInput("mode")) != torch::jit::IValue("constant")) {
    return "it does not pad with zeros";
  }
  const Value* value = pad->namedInput("value");
  if (!value->mustBeNone() && number(value) != 0) return "it does not pad with zeros";
  for (const Use& use : readers_of(pad)) {
    if (!quantize.is_of(use.user)) return "another reader needs the padded image";
    if (!toIValue(use.user->input(3))->isNone()) return "it is scaled channel by channel before it is rounded";
    for (const Use& reader : use.user->output()->uses()) {
      if (const auto reason = reason_against_reader(reader.user, use.user->output())) return reason;
    }
  }
  return std::nullopt;
}

void rewrite(Node* pad) {
  const auto quantizes = readers_of(pad);  // as they are now: the readers are replaced
  for (const Use& use : quantizes) {
    const auto readers = use.user->output()->uses();
    for (const Use& reader : readers) set_argument(reader.user, "widths", pad->namedInput("pad"));
    // In the place of %p: something may overwrite %x between there and here.
    const torch::jit::WithInsertPoint guard(pad);
    Graph& graph = *pad->owningGraph();
    Node* converted = use.user->input(0)->node();
    Value* image = pad->input(0);
    if (converted != pad) image = graph.insert(converted->kind(), {image, *toIValue(converted->input(1))});
    Node* quantize = graph
                         .insert(use.user->kind(), {image, *toIValue(use.user->input(1)), *toIValue(use.user->input(2)),
                                                    torch::jit::IValue()})
                         ->node();
    replace(use.user, quantize);
    if (converted != pad && !converted->hasUses()) converted->destroy();
  }
}

bool run(Context& context) {
  static const OpName quantize("ipex::quantize");
  bool changed = false;
  for (Node* pad : find_pads(context.graph)) {
    const std::vector<Use> uses = readers_of(pad);
    if (std::none_of(uses.begin(), uses.end(), [](const Use& use) { return quantize.is_of(use.user); })) continue;
    if (const auto reason = reason_against(pad)) {
      context.declined(pad, *reason);
      continue;
    }
    context.applied(pad, "computed by the int8 convolutions that read it");
    rewrite(pad);
    pad->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace

Pass pad_bytes() { return {"pad_bytes", run, needs(layers_apart), /*reasons_stay=*/true}; }

}  // namespace ipex::passes
