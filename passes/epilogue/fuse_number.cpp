// fuse_number: let the packed op that produces a value add, subtract, multiply or divide by a constant number.
//
//   before   %y = ipex::linear_run(%x, %packed, ..)    %z = aten::mul(%y, %number)
//   after    %z = ipex::linear_run(%x, %packed', ..)   packed' = packed + post-op mul_number
//
// Works in both operand orders. Declines when alpha is not 1 or when %y is the divisor: oneDNN has no such form.
#include "pattern/fusion_rule.h"

namespace ipex::passes {
namespace {

const FusionRule rule = FusionRule("fuse_number")
                            .match("%z = aten::add_?(%y, %number, %alpha)")
                            .only_if("number", is_number)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("add_number(%number)")
                            .match("%z = aten::add(%number, %y, %alpha)")
                            .only_if("number", is_number)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("add_number(%number)")
                            .match("%z = aten::sub_?(%y, %number, %alpha)")
                            .only_if("number", is_number)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("add_number(-%number)")
                            .match("%z = aten::sub(%number, %y, %alpha)")
                            .only_if("number", is_number)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("rsub_number(%number)")
                            .match("%z = aten::rsub(%y, %number, %alpha)")
                            .only_if("number", is_number)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("rsub_number(%number)")
                            .match("%z = aten::mul_?(%y, %number)")
                            .only_if("number", is_number)
                            .append("mul_number(%number)")
                            .match("%z = aten::mul(%number, %y)")
                            .only_if("number", is_number)
                            .append("mul_number(%number)")
                            .match("%z = aten::div_?(%y, %number)")
                            .only_if("number", is_number)
                            .append("div_number(%number)");
IPEX_REGISTER_FUSION(rule);

}  // namespace
}  // namespace ipex::passes
