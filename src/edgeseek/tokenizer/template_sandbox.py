"""A sandboxed Jinja environment whose renderings cannot hang or fill the memory.

Owns the rewriting of a parsed template, so that every loop turn is counted, and the measuring of
every operation that builds a value. Access to Python internals is Jinja's sandbox's to refuse.
Knows nothing of messages or models.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from edgeseek.tokenizer.template_meter import Meter
from edgeseek.tokenizer.template_sizes import FILTER_SIZES, ITEM_SIZE, METHOD_SIZES, printf_size

_NUMBER = re.compile(r"\d+")
_STEP, _CONCAT, _WEIGHED = "_step", "_concat", "_weighed"
#: Methods that no template needs and whose results are hard to bound.
_REFUSED_METHODS = frozenset({"encode", "maketrans", "to_bytes", "translate"})


class TemplateNamespace(Namespace):
    """Jinja's namespace, without names that begin with "_" and with a repr of fixed size."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # `self` may be an attribute's name, so it is not a parameter's.
        for name in dict(*args[1:], **kwargs):
            _check_attribute(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"


def _check_attribute(name: Any) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace may not have an attribute {str(name)!r}")


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """What `dict` names in a template: a function, since the class leads to Python's internals."""
    return dict(*args, **kwargs)


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Compile with `compile_metered`, render inside `metered(meter)`; usable from many threads."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *, extensions: Iterable[Any], filters: dict[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=list(extensions), finalize=self._finalized
        )
        self._meter: ContextVar[Meter] = ContextVar("meter")
        self.concat = self._join_output  # type: ignore[method-assign]  # Jinja's own hook
        self.globals.pop("lipsum", None)
        self.globals.update(dict=_dict, namespace=TemplateNamespace)
        self.filters.update(filters)
        self.filters["join"] = self._join
        self.filters = {name: self._metered_filter(name, each) for name, each in self.filters.items()}
        self.tests = {name: self._metered_filter("", each) for name, each in self.tests.items()}
        self.filters.update({_STEP: self._step(), _CONCAT: self._concat, _WEIGHED: self._weighed})

    @contextmanager
    def metered(self, meter: Meter) -> Iterator[None]:
        """Charge whatever this thread compiles or renders inside to `meter`."""
        token = self._meter.set(meter)
        try:
            yield
        finally:
            self._meter.reset(token)

    def compile_metered(self, source: str) -> jinja2.Template:
        """Compile `source` with counted loops; raises TemplateSyntaxError with its line."""
        tree = self.parse(source)
        tree = _Metering().visit(tree)
        tree.set_environment(self)
        code = self.compile(tree, filename="<template>")
        return jinja2.Template.from_code(self, code, self.make_globals(None))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Jinja's hook for every call in a template (its names keep clear of keyword arguments)."""
        meter = __self._meter.get()
        meter.step()
        meter.weigh(args)
        # Jinja adds the variables of the enclosing loop and block under names of its own.
        named = {name: value for name, value in kwargs.items() if not name.startswith("_")}
        meter.weigh(named)
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, types.BuiltinMethodType) and isinstance(owner, str):
            name = __obj.__name__
            if name == "join" and len(args) == 1:
                args = (__self._listed(args[0], separator=owner),)
            elif name in METHOD_SIZES:
                meter.reserve(METHOD_SIZES[name](owner, *args, **named))
        return __self._counted(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Jinja's hook for the operators in `intercepted_binops`."""
        meter = self._meter.get()
        weights = meter.weigh(left), meter.weigh(right)
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "+" and not numbers:
            meter.reserve(sum(weights))
        elif operator == "*":
            if numbers:
                meter.integer(left.bit_length() + right.bit_length())
            elif isinstance(right, int):
                meter.reserve(weights[0] * right)
            elif isinstance(left, int):
                meter.reserve(weights[1] * left)
        elif operator == "**" and numbers:
            meter.integer(max(left.bit_length(), 1) * abs(right))
        elif operator == "%" and isinstance(left, str):
            meter.reserve(printf_size(left, weights[1]))
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Jinja's hook for subscripts: a nested tuple as a key must not be slow to hash."""
        self._weighed(argument)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Jinja's hook for attributes."""
        if attr in _REFUSED_METHODS or isinstance(obj, (bytes, bytearray)):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Jinja's hook for str.format and str.format_map, here with every field measured."""
        if super().wrap_str_format(value) is None:
            return None
        text: str = value.__self__
        formatter = _MeteredFormatter(self, self._meter.get())

        def format_text(*args: Any, **kwargs: Any) -> str:
            if value.__name__ == "format_map":
                (kwargs,), args = args, ()
            return formatter.vformat(str(text), args, kwargs)

        return format_text

    def _metered_filter(self, name: str, function: Any) -> Callable[..., Any]:
        """Count, weigh and bound a filter or test; Jinja's marks on the function are kept."""
        size_of = FILTER_SIZES.get(name)
        skipped = 0 if getattr(function, "jinja_pass_arg", None) is None else 1

        @functools.wraps(function)
        def metered(*args: Any, **kwargs: Any) -> Any:
            meter = self._meter.get()
            meter.step()
            weight = meter.weigh(args[skipped:]) + meter.weigh(kwargs)
            if size_of is not None:
                meter.reserve(size_of(*args[skipped:], **kwargs))
            elif name == "format":
                meter.reserve(printf_size(args[0], weight))
            return self._counted(function(*args, **kwargs))

        return metered

    def _counted(self, value: Any) -> Any:
        """Charge a result that is already built by what it alone holds."""
        if isinstance(value, str):
            self._meter.get().reserve(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self._meter.get().reserve(len(value) * ITEM_SIZE)
        return value

    def _weighed(self, value: Any) -> Any:
        """Refuse a container too large to print, compare or hash."""
        if isinstance(value, (list, tuple, dict)):
            self._meter.get().weigh(value)
        return value

    def _listed(self, values: Any, *, separator: str) -> list[Any]:
        """The items to join, in a list, with the size of the result reserved."""
        items = list(values)
        meter = self._meter.get()
        meter.reserve(meter.weigh(items) + len(items) * len(separator))
        return items

    def _join(self, value: Any, d: str = "", attribute: str | int | None = None) -> str:
        """Jinja's filter join, for text without autoescape."""
        if attribute is not None:
            value = map(make_attrgetter(self, attribute), value)
        return str(d).join(map(str, self._listed(value, separator=str(d))))

    def _finalized(self, value: Any) -> Any:
        """What `{{ value }}` prints."""
        if isinstance(value, (list, tuple, dict)):
            meter = self._meter.get()
            meter.reserve(meter.weigh(value))
        return value

    def _join_output(self, parts: Iterable[str]) -> str:
        """What blocks, macros and `set` blocks collect."""
        return self._concat(list(parts))

    def _concat(self, values: Any) -> str:
        """The operator `~`."""
        meter = self._meter.get()
        meter.reserve(sum(map(meter.weigh, values)))
        return "".join(map(str, values))

    def _step(self) -> Callable[..., None]:
        @jinja2.pass_context  # a filter that takes the context is never run at compile time
        def step(_context: Context, _value: None) -> None:
            self._meter.get().step()

        return step


class _MeteredFormatter(SandboxedFormatter):
    """str.format with each field's width and result measured."""

    def __init__(self, environment: jinja2.Environment, meter: Meter) -> None:
        super().__init__(environment)
        self._meter = meter

    def format_field(self, value: Any, format_spec: str) -> Any:
        """One field: the width is charged before, the text after it is made."""
        self._meter.step()
        self._meter.reserve(self._meter.weigh(value) + sum(map(int, _NUMBER.findall(format_spec))))
        return super().format_field(value, format_spec)


class _Metering(NodeTransformer):
    """Puts a step into every loop body and measures what Jinja compiles to plain Python."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        step = _filter(nodes.Const(None, lineno=node.lineno), _STEP)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), _CONCAT)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _weighed(node) if node.ctx == "load" else node


def _filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _weighed(node: nodes.Expr) -> nodes.Expr:
    done = isinstance(node, nodes.Const) or (isinstance(node, nodes.Filter) and node.name == _WEIGHED)
    return node if done else _filter(node, _WEIGHED)
