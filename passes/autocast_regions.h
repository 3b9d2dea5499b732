// `with torch.autocast("cpu", enabled=False)` in a scripted model.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// TorchScript drops the statement, and each op casts its arguments where the caller has switched autocast on. Ops of ours
// switch it off for the region.
//
//   before   = prim::Enter(%autocast)    %y = aten::linear(%x, ..)     = prim::Exit(%autocast)    %z = aten::relu(%y)
//   after    = prim::Enter(%autocast)    %pause = ipex::pause_autocast()
//            %x' = ipex::kept_apart(%x, %pause)                        %y = aten::linear(%x', ..)
//            ipex::resume_autocast(%pause)    = prim::Exit(%autocast)
//            %y' = ipex::kept_apart(%y, %pause)                        %z = aten::relu(%y')
//
// So nothing inside is the same as anything outside, or joined with it. Only where `enabled` is a constant.
void keep_autocast_off(Graph& graph);

}  // namespace ipex::passes
