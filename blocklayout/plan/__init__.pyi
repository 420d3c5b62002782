"""Generated: ``pytest tests/structure --update-golden`` writes it."""

from blocklayout.plan.choices import KernelChoice as KernelChoice
from blocklayout.plan.choices import Way as Way
from blocklayout.plan.costs.machine import Machine as Machine
from blocklayout.plan.costs.model import CostModel as CostModel
from blocklayout.plan.make import make_plan as make_plan
from blocklayout.plan.plan import Buffer as Buffer
from blocklayout.plan.plan import Entry as Entry
from blocklayout.plan.plan import Operand as Operand
from blocklayout.plan.plan import PackedConstant as PackedConstant
from blocklayout.plan.plan import Plan as Plan
from blocklayout.plan.plan import Result as Result
from blocklayout.plan.plan import Step as Step
from blocklayout.plan.policies import POLICIES as POLICIES
from blocklayout.plan.policies import SIMPLE_POLICIES as SIMPLE_POLICIES
from blocklayout.plan.pricing import Pricing as Pricing
from blocklayout.plan.request import Request as Request
from blocklayout.plan.request import TUNE_MODES as TUNE_MODES
from blocklayout.plan.request import TUNE_SECONDS as TUNE_SECONDS
from blocklayout.plan.request import TuneMode as TuneMode
from blocklayout.plan.runs import LossMode as LossMode
from blocklayout.plan.runs import Run as Run
from blocklayout.plan.runs import RunEnd as RunEnd
from blocklayout.plan.runs import find_runs as find_runs

__all__: list[str]
