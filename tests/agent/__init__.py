import pytest

pytest.register_assert_rewrite(
    "tests.agent.backend_contract", "tests.agent.stream_contract", "tests.agent.contract_tools"
)
