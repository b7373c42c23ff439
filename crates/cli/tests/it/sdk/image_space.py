"""A build over an image of a registry, which fails for this reason or for none."""
import os

from e2b import BuildException, Template

image = os.environ.get("TEST_IMAGE", "team/app:1")
for name in ("bounded-1", "bounded-2"):
    try:
        Template.build(Template().from_image(f"{os.environ['TEST_REGISTRY']}/{image}").run_cmd("true"), name)
        assert os.environ["TEST_EXPECTED"] == "", "it was taken in"
    except BuildException as error:
        assert os.environ["TEST_EXPECTED"] and os.environ["TEST_EXPECTED"] in str(error), error
