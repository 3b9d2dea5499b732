"""replace_dropout_with_identity: dropout does nothing in eval mode, and costs a call."""

from __future__ import annotations

from torch import nn

from .notes import Notes

KNOB = "replace_dropout_with_identity"
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def replace_dropout(model: nn.Module, notes: Notes) -> None:
    """Put an nn.Identity in the place of every dropout of torch's."""
    if type(model) in DROPOUTS:
        notes.declined(KNOB, "the model", "it is the model itself")
    for parent_name, parent in model.named_modules():
        for name, child in list(parent._modules.items()):
            if type(child) not in DROPOUTS:
                continue
            full_name = f"{parent_name}.{name}".lstrip(".")
            if child.training:
                notes.declined(KNOB, full_name, "it is in training mode")
            elif child._forward_hooks or child._forward_pre_hooks or "forward" in child.__dict__:
                notes.declined(KNOB, full_name, "it has hooks or a forward of its own")
            else:
                identity = nn.Identity().eval()
                identity.p, identity.inplace = child.p, child.inplace  # which code of the model may read
                parent._modules[name] = identity
                notes.applied(KNOB, full_name, "replaced")
