"""Times agentevals on the pairs that `cofferdam-eval speed FILE` wrote, and prints processor seconds per mode as JSON."""

import json
import sys
import time

from agentevals.trajectory.match import create_trajectory_match_evaluator

pairs = json.load(open(sys.argv[1]))
seconds = {}
for mode in ("strict", "unordered"):
    evaluate = create_trajectory_match_evaluator(trajectory_match_mode=mode)
    evaluate(outputs=pairs[0]["outputs"], reference_outputs=pairs[0]["reference"])
    rounds = []
    for _ in range(3):
        begun = time.process_time()
        for pair in pairs:
            evaluate(outputs=pair["outputs"], reference_outputs=pair["reference"])
        rounds.append(time.process_time() - begun)
    seconds[mode] = sorted(rounds)[1]
print(json.dumps(seconds))
