"""Rules that try several writes with a forward each."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

_LOOKUM, _GAIN = "LookUM 2511.05563", "Information Gain 2602.18176"
_LOOKUM_STYLE = (
    "the paper's text: its code is not public, so this is LookUM-style; pool of 5 and two paths are its defaults"
)
_OPEN = (
    "where the text is open: the pool are rows (more than are written), sets are drawn by confidence, one is "
    "the greedy set, the mean is over what is still masked, the best is taken (resampling draws; its value is not told)"
)
_TRACES = "five recorded traces (info_gain, lookum) with their candidates fed in: objectives, winners, forwards"
_JOINT = (
    "candidates share one drawn token for each row (theirs draw anew); one candidate alone is not tried; no forward "
    "behind the last row of a block, whose result theirs does not use"
)
_REPLAY = "a path is read off a replay with given rows as remembered: an approximation of ours"

PRESETS: dict[str, Preset] = {
    "beam": Preset(
        "keeps the few canvases whose tokens were most probable when written, whatever their order",
        "",
        "lookahead",
        kernel="beam",
        cost="a forward for each of the four beams, so four steps' work; no row cache can help",
        choose="short answers of which the most probable order is wanted; a streamer waits for the end",
        source="ours: beam search as it is known from autoregressive models, over orders instead of tokens",
        verified="the best of all orders by enumeration on small canvases; one beam is confidence with argmax",
        departures="tokens are the most probable ones; only positions branch",
    ),
    "info-gain": Preset(
        "tries up to eight sets near the most confident rows; least doubt written and least left",
        _GAIN,
        "lookahead",
        ranking="info_gain",
        budget="all_sure",
        cost="up to seven forwards more, one for every distinct set but the first; none where all open rows are sure",
        choose="where several orders look equally sure and quality counts more than work; compare at equal work",
        source="its code (yks23/Information-Gain-Sampler) with its defaults; charge=0 is its variant 'lookum'",
        verified=_TRACES,
        departures=_JOINT,
    ),
    "info-gain-replay": Preset(
        "info-gain with replays of the masked rows instead of forwards",
        _GAIN,
        "lookahead",
        ranking="info_gain",
        budget="all_sure",
        parameters={"evaluate": "replay"},
        cost="up to eight replays of the masked rows: less work than info-gain unless nearly all rows are masked",
        choose="as info-gain, with a long prompt or on a row cache, which takes the winner's replay for its next step",
        source="its objective, tried by ours",
        verified="equal to info-gain in one-layer models and where all is masked; rank correlation 0.9 on Sudoku",
        departures=f"{_JOINT}; {_REPLAY}",
    ),
    "lookum": Preset(
        "tries two sets of confident rows and writes the one that leaves the least uncertain",
        _LOOKUM,
        "lookahead",
        ranking="lookum",
        cost="one forward more, whatever the step writes: k paths cost k forwards, the winner's being the next step's",
        choose="twice the work for a second opinion at every step; compare with confidence at twice the steps",
        source=_LOOKUM_STYLE,
        verified="draws and resampling by counting, means against forwards; its verifier in the two 'lookum' traces of "
        "the Information-Gain code; one greedy path is confidence",
        departures=_OPEN,
    ),
    "lookum-replay": Preset(
        "lookum with replays of the masked rows instead of forwards",
        _LOOKUM,
        "lookahead",
        ranking="lookum",
        parameters={"evaluate": "replay"},
        cost="two replays of the masked rows: less work than lookum where fewer than half of all rows are masked; a "
        "row cache takes the winner's for its next step",
        choose="as lookum, with a long prompt or on a row cache",
        source=_LOOKUM_STYLE,
        verified="equal to lookum in one-layer models and where all is masked; rank correlation 0.9 on Sudoku",
        departures=f"{_OPEN}; {_REPLAY}",
    ),
}
