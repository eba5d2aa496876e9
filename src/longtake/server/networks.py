"""The models that an operator offers, each loaded once for all sessions."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longtake.api.models import load_language_model, load_model
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL, bundled_folder
from longtake.hub.load import familiarity_of, loops_of
from longtake.language.load import LanguageModel
from longtake.language.question_grammar import QuestionGrammar
from longtake.places.loop_choice import LoopChoice, choose_loops
from longtake.runtime.build import usual_settings
from longtake.runtime.execution import AUTO
from longtake.runtime.record import weights_fingerprint
from longtake.server.problems import RequestError
from longtake.server.spec import SessionSpec
from longtake.takes.header import Network
from longtake.weights.familiarity import Familiarity

_FOR_ANY = ("What is there to see?", "What has changed?", "Where was this filmed?")
"""Questions for a model that can be asked anything."""


@dataclass(slots=True, eq=False)
class Networks:
    """Only models of these names are loaded: a name may be a path, which is no client's to choose."""

    maps: Sequence[str] = (DEFAULT_MODEL,)
    languages: Sequence[str] = (DEFAULT_LANGUAGE,)
    device: str = AUTO
    precision: str = AUTO
    _loaded_maps: dict[str, GeometryModel] = field(default_factory=dict)
    _loaded_languages: dict[str, LanguageModel] = field(default_factory=dict)
    _loops: dict[str, LoopChoice] = field(default_factory=dict)
    _familiarity: dict[str, Familiarity | None] = field(default_factory=dict)
    _identities: dict[str, Network] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def require_known(self, model: str | None, language: str | None) -> None:
        """Refuse names that the operator does not offer."""
        for kind, name, known in (("model", model, self.maps), ("language model", language, self.languages)):
            if name is not None and name not in known:
                offered = ", ".join(known) or "none"
                raise RequestError(
                    "unknown_model", f"There is no {kind} of this name here; the server offers {offered}.", status=404
                )

    def questions_for(self, name: str) -> Sequence[str]:
        """What to ask a language model, of what it was taught where its folder says so; none is loaded for it."""
        known = self._grammar_of(name)
        return _FOR_ANY if known is None else known.examples

    def words_for(self, name: str) -> Mapping[str, Sequence[str]]:
        """Lists of what a language model knows, by what people call them; none where it can be asked anything."""
        known = self._grammar_of(name)
        return {} if known is None else known.lists

    def _grammar_of(self, name: str) -> QuestionGrammar | None:
        loaded = self._loaded_languages.get(name)
        return loaded.known if loaded else QuestionGrammar.from_folder(bundled_folder(name) or Path(name))

    def load_first(self) -> None:
        """The first of each kind, so that the first session need not wait for them."""
        self.map_named(self.maps[0] if self.maps else None)
        self.language_named(self.languages[0] if self.languages else None)

    def loaded(self, model: str | None, language: str | None) -> tuple[GeometryModel | None, LanguageModel | None]:
        """Those of these names that are in memory already: what can be known at once."""
        return self._loaded_maps.get(model or ""), self._loaded_languages.get(language or "")

    def map_named(self, name: str | None) -> GeometryModel | None:
        if name is None:
            return None
        with self._lock:
            if name not in self._loaded_maps:
                self._loaded_maps[name] = load_model(name, device=self.device, precision=self.precision)
            return self._loaded_maps[name]

    def language_named(self, name: str | None) -> LanguageModel | None:
        if name is None:
            return None
        with self._lock:
            if name not in self._loaded_languages:
                self._loaded_languages[name] = load_language_model(name, device=self.device, precision=self.precision)
            return self._loaded_languages[name]

    def identity_named(self, name: str | None) -> Network | None:
        """What a take says of the geometry model that made it; None without one."""
        model = self.map_named(name)
        if name is None or model is None:
            return None
        with self._lock:
            if name not in self._identities:
                self._identities[name] = Network(name, weights_fingerprint(model))
            return self._identities[name]

    def loops_of(self, spec: SessionSpec) -> LoopChoice:
        """Whether a session closes loops, and why."""
        if spec.model is None:
            return LoopChoice(why="nothing maps")
        if not spec.loops:
            return choose_loops(None, are_wanted=False)
        with self._lock:
            if spec.model not in self._loops:
                self._loops[spec.model] = loops_of(spec.model)
            return self._loops[spec.model]

    def loop_bytes(self, spec: SessionSpec, size: tuple[int, int] | None = None) -> int:
        """That a session may come to hold for loops beside its keys and values, of frames of this height and width.

        Before there was one, of the largest that its network is shown.
        """
        loops, model = self.loops_of(spec), None
        if loops.card is not None:
            model = self.map_named(spec.model)
        if model is None:
            return 0
        usual = usual_settings(model.config)
        sizes = [size] if size is not None else usual.sizes or [(usual.image_size, usual.image_size)]
        return max(loops.most_bytes(one, model.config.width) for one in sizes)

    def familiarity_named(self, name: str | None) -> Familiarity | None:
        """Of what a model of either kind was trained on; None where nothing is known of that."""
        if name is None:
            return None
        with self._lock:
            if name not in self._familiarity:
                self._familiarity[name] = familiarity_of(name)
            return self._familiarity[name]
