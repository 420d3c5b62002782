"""The site: ``python -m sphinx -W -b html docs build/site``, with the extra ``docs``."""

from __future__ import annotations

import sys
from pathlib import Path

import blocklayout

sys.path.insert(0, str(Path(__file__).parent / "site"))  # the extensions beside this file

project = "blocklayout"
version = release = blocklayout.__version__
html_title = project
html_theme = "furo"
html_show_copyright = False

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "reference_pages",
    "llms_txt",
]
exclude_patterns = ["site", "examples"]

myst_heading_anchors = 4  # of a link to a section: page.md#its-heading
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Source"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
