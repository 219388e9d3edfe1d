"""senders: who a user means when asking what happens to a packet.

Here: the text of ``explain --from``. Not here: what happens to the packet (explain.py).
Invariant: a Pod that is named must be there; a Pod that is only described by labels need not.
"""

from ipaddress import ip_address

from podgate.features.masquerade.explain import Who
from podgate.features.masquerade.resolving import namespace_labels
from podgate.features.masquerade.selecting import Labelled
from podgate.joints import Inputs, QuestionError
from podgate.model.kinds.config import NAMESPACE
from podgate.model.kinds.pods import POD, Pod, pod_named, pod_names


def sender_of(text: str, inputs: Inputs) -> Who:
    """Read ``[NS/]POD``, ``[NS/]LABEL=VALUE,…`` or an address.

    Raises:
        QuestionError: it is none of these, or there is no such Pod.
    """
    try:
        return ip_address(text)
    except ValueError:
        if "=" in text:
            return _labelled(text, inputs)
    pods = inputs.objects.objects(POD)
    pod = pod_named(text, pods)
    if pod is not None:
        return pod
    raise QuestionError(
        f'--from "{text}" is neither an address nor a Pod of the source on this node (Pods: {pod_names(text, pods)})'
    )


def _labelled(text: str, inputs: Inputs) -> Labelled:
    # A label's key may have a slash too: a namespace has no dot, and the prefix of a key mostly has.
    before, slash, after = text.partition("/")
    given = bool(slash) and "=" not in before and "." not in before
    namespace, pairs = (before, after) if given else ("default", text)
    labels: dict[str, str] = {}
    for pair in pairs.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise QuestionError(f'--from "{text}": "{pair}" is no label: write LABEL=VALUE, as shop/app=web')
        labels[key.strip()] = value.strip()
    return Labelled(labels, namespace, namespace_labels(inputs.objects.objects(NAMESPACE), namespace))


def namespace_of(sender: Who) -> str:
    """Give the namespace that a sender is in; of an address none is known."""
    return sender.metadata.namespace if isinstance(sender, Pod) else ""
