// rewrite_activation_spellings: an activation written out by hand becomes the op that computes it, so that one fusion
// per activation is enough.
//
//   before   %s = aten::sigmoid(%x)    %y = aten::mul(%x, %s)
//   after    %y = aten::silu(%x)
//
//   x * sigmoid(x)                                             silu
//   0.5 * x * (1 + erf(x / sqrt(2)))                           ipex::erf_gelu, and its factored forms
//   0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) gelu, approximate='tanh', and its factored forms
//   x * tanh(softplus(x))                                      mish
//   relu6(x + 3) / 6                                           hardsigmoid
//   x * relu6(x + 3) / 6                                       hardswish
//
// Declines where %x may be an integer: the arithmetic takes it, the op raises. And where the op rounds or overflows in
// another place than the arithmetic: x * (1 + erf(..)) * 0.5 is infinite where gelu is not, hardswish where
// x * hardsigmoid(x) is not. x * sigmoid(1.702 * x) stays, as there is no op for it.
#include <cmath>

#include "ir/floating.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

struct Constant {
  const char* name;
  double value;
};

// The constants in the texts below. Each that a text names is checked.
const std::vector<Constant> constants{{"one", 1},
                                      {"alpha", 1},
                                      {"alpha2", 1},
                                      {"half", 0.5},
                                      {"two", 2},
                                      {"three", 3},
                                      {"zero", 0},
                                      {"six", 6},
                                      {"top", 6},
                                      {"sixth", 1. / 6},
                                      {"twenty", 20},
                                      {"sqrt2", std::sqrt(2.)},
                                      {"sqrt_half", std::sqrt(.5)},
                                      {"cubic", 0.044715},
                                      {"sqrt_2_over_pi", std::sqrt(2 / M_PI)}};

Spelling spelling(const std::string& ir) {
  Spelling result = Spelling(ir).declines_unless("x", is_floating, "its input may be an integer");
  for (const auto& [name, value] : constants) {
    if (!result.mentions(name)) continue;
    result = std::move(result).declines_unless(name, equals(value), c10::str("a constant is not ", value));
  }
  return result;
}

bool never(const Value*) { return false; }

// 0.5 * x * gate, where the op multiplies by 0.5 before it multiplies by the gate, and where only then.
void add_gelu(std::vector<Spelling>& all, const std::string& gate, bool is_erf) {
  const auto gelu = [&](Spelling text) {
    return is_erf ? std::move(text).becomes("ipex::erf_gelu", {"x"})
                  : std::move(text).becomes("aten::gelu", {"x"}, {"tanh"});
  };
  for (const char* product : {"%h = aten::mul(%x, %half)\n %y = aten::mul(%h, %gate)",
                              "%h = aten::mul(%gate, %half)\n %y = aten::mul(%x, %h)"}) {
    all.push_back(gelu(spelling(gate + product)));
  }
  for (const char* product : {"%h = aten::mul(%x, %gate)\n %y = aten::mul(%h, %half)",
                              "%h = aten::mul(%x, %gate)\n %y = aten::div(%h, %two)"}) {
    all.push_back(gelu(spelling(gate + product)
                           .declines_unless("x", never, "it is halved last and so overflows where the op doesn't")));
  }
}

std::vector<Spelling> all_spellings() {
  std::vector<Spelling> all;
  all.push_back(spelling("%s = aten::sigmoid(%x)\n %y = aten::mul(%x, %s)").becomes("aten::silu", {"x"}));
  all.push_back(spelling("%t = aten::mul(%x, %factor)\n %s = aten::sigmoid(%t)\n %y = aten::mul(%x, %s)")
                    .declines_unless("x", never, "no op computes x * sigmoid(factor * x)")
                    .becomes("aten::silu", {"x"}));
  all.push_back(spelling("%p = aten::softplus(%x, %one, %twenty)\n %t = aten::tanh(%p)\n %y = aten::mul(%x, %t)")
                    .becomes("aten::mish", {"x"}));

  for (const char* scaled : {"%t = aten::div(%x, %sqrt2)\n", "%t = aten::mul(%x, %sqrt_half)\n"}) {
    add_gelu(all, std::string(scaled) + "%e = aten::erf(%t)\n %gate = aten::add(%e, %one, %alpha)\n",
             /*is_erf=*/true);
  }
  const std::string cubes[] = {"%p = aten::pow(%x, %three)\n %k = aten::mul(%p, %cubic)\n",
                               "%p = aten::mul(%x, %x)\n %q = aten::mul(%p, %x)\n %k = aten::mul(%q, %cubic)\n",
                               "%p = aten::mul(%x, %cubic)\n %q = aten::mul(%p, %x)\n %k = aten::mul(%q, %x)\n"};
  const std::string squares[] = {"%p = aten::mul(%x, %cubic)\n %k = aten::mul(%p, %x)\n",
                                 "%p = aten::mul(%x, %x)\n %k = aten::mul(%p, %cubic)\n",
                                 "%p = aten::pow(%x, %two)\n %k = aten::mul(%p, %cubic)\n"};
  const std::string gate = "%e = aten::tanh(%u)\n %gate = aten::add(%e, %one, %alpha)\n";
  for (const std::string& cube : cubes) {
    add_gelu(all, cube + "%t = aten::add(%x, %k, %alpha2)\n %u = aten::mul(%t, %sqrt_2_over_pi)\n" + gate,
             /*is_erf=*/false);
  }
  for (const std::string& square : squares) {
    add_gelu(all,
             "%c = aten::mul(%x, %sqrt_2_over_pi)\n" + square +
                 "%t = aten::add(%k, %one, %alpha2)\n %u = aten::mul(%c, %t)\n" + gate,
             /*is_erf=*/false);
  }
  for (const char* relu6 :
       {"%r = aten::relu6(%t)\n", "%r = aten::hardtanh(%t, %zero, %top)\n", "%r = aten::clamp(%t, %zero, %top)\n"}) {
    const std::string ramp = std::string("%t = aten::add(%x, %three, %alpha)\n") + relu6;
    all.push_back(
        spelling(ramp + "%p = aten::mul(%x, %r)\n %y = aten::div(%p, %six)").becomes("aten::hardswish", {"x"}));
    all.push_back(spelling(ramp + "%y = aten::div(%r, %six)").becomes("aten::hardsigmoid", {"x"}));
    all.push_back(spelling(ramp + "%y = aten::mul(%r, %sixth)").becomes("aten::hardsigmoid", {"x"}));
  }
  all.push_back(spelling("%s = aten::hardsigmoid(%x)\n %y = aten::mul(%x, %s)")
                    .declines_unless("x", never, "hardswish overflows where it doesn't")
                    .becomes("aten::hardswish", {"x"}));
  return all;
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings = all_spellings();
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_activation_spellings() {
  return {"rewrite_activation_spellings", run, needs(no_dropout, plain_arithmetic)};
}

}  // namespace ipex::passes
