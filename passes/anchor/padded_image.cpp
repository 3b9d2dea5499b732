#include "anchor/padded_image.h"

#include <algorithm>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/motion.h"

namespace ipex::passes {

std::optional<Anchor> convolution_after(const Node* pad) {
  static const OpName convert("ipex::to_channels_last");
  const Value* image = pad->output();
  const auto reader = [&] { return image->uses().empty() ? nullptr : image->uses()[0].user; };
  if (image->uses().size() == 1 && convert.is_of(reader()) && reader()->output()->uses().size() == 1) {
    image = reader()->output();
  }
  if (!reader() || reader()->outputs().size() != 1) return std::nullopt;
  const auto anchor = Anchor::producing(reader()->output());
  return anchor && anchor->input() == image && anchor->spatial_rank() > 0 ? anchor : std::nullopt;
}

std::optional<std::string> reason_against_padding(const Node* pad, const Anchor& convolution) {
  if (pad->output()->uses().size() != 1) return "another reader needs the padded image";
  if (pad->hasNamedInput("mode") && torch::jit::toIValue(pad->namedInput("mode")) != torch::jit::IValue("constant")) {
    return "it does not pad with zeros";
  }
  const Value* value = pad->namedInput("value");
  if (!value->mustBeNone() && number(value) != 0) return "it does not pad with zeros";
  if (convolution.is_transposed()) return "the convolution is transposed";
  if (const auto reason = reason_against_waiting(pad, convolution.run())) return reason;
  const auto& readers = pad->input(0)->uses();
  if (std::any_of(readers.begin(), readers.end(), overwrites)) return "what it pads is overwritten";
  return std::nullopt;
}

}  // namespace ipex::passes
