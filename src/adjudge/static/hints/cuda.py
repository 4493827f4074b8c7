"""The same in CUDA C++, told by names alone."""

from __future__ import annotations

import ast
import re

from adjudge.static.device_code import bare
from adjudge.static.hints.common import Found, Rule
from adjudge.static.inline import inline_sources
from adjudge.static.source import Source

#: Rule -> what in CUDA C++ names the same; looked for outside comments and strings.
IN_CUDA: dict[str, re.Pattern[str]] = {
    "starts-work": re.compile(
        r"\b(?:std::(?:thread|async|jthread)|pthread_create|fork|system|popen)\b"
    ),
    "side-stream": re.compile(
        r"\b(?:cudaStreamCreate\w*|getStreamFromPool|cudaGraph\w+|cudaStreamBeginCapture|setCurrentCUDAStream)\b"
    ),
    "reads-machine": re.compile(r"\b(?:getenv|fopen|open|ifstream|mmap|dlopen|dlsym)\s*[(<\s]"),
    "walks-stack": re.compile(
        r"\b(?:PyEval_\w+|PyFrame_\w+|PyThreadState_\w+|PyGC_\w+|backtrace)\b"
    ),
    "reads-clock": re.compile(
        r"\b(?:std::chrono|cudaEventElapsedTime|cudaEventRecord|gettimeofday)\b"
    ),
    "patches": re.compile(r"\b(?:PyObject_SetAttr\w*|mprotect|LD_PRELOAD)\b"),
    "keeps-state": re.compile(
        r"\bstatic\s+(?:thread_local\s+)?(?:std::(?:unordered_)?map|(?:torch|at)::Tensor|std::vector|"
        r"std::optional)\b"
    ),
    "pointer-key": re.compile(r"\bdata_ptr\s*(?:<[^>]*>)?\s*\(\s*\)\s*(?:==|!=)"),
}


def in_cuda(rule: str) -> Rule:
    pattern = IN_CUDA[rule]

    def look(source: Source) -> Found:
        for extension in inline_sources(source)[0]:
            for found in dict.fromkeys(pattern.findall(bare(extension.text))):
                words = f"its CUDA C++ uses {' '.join(found.split())}"
                yield ast.Pass(lineno=extension.line, col_offset=0), words

    return look
