// Package celeval asks Kubernetes' own evaluator whether CEL selectors accept a
// device, and its own limits whether the API server would store them.
//
// It reads questions and writes answers, one JSON object a line each, so that a
// test can put thousands of them to one process.
package celeval

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

// longestLine is far above what 32 selectors of the longest kind need.
const longestLine = 1 << 20

// Question is a device of a driver, as in a ResourceSlice, and the selectors of
// one request.
type Question struct {
	Driver    string             `json:"driver"`
	Device    resourceapi.Device `json:"device"`
	Selectors []string           `json:"selectors"`
}

// Answer says whether all selectors accept the device. Refused holds, for
// selectors that the API server would not store, why; Failed why the scheduler
// would give up on the pod. Cost is the worst case of each selector.
type Answer struct {
	Matches bool     `json:"matches"`
	Refused []string `json:"refused"`
	Failed  string   `json:"failed"`
	Cost    []uint64 `json:"cost"`
}

// Evaluator remembers what it compiled, since many questions share selectors.
type Evaluator struct {
	compiled map[string]cel.CompilationResult
}

// Serve answers every question of in on out.
func Serve(in io.Reader, out io.Writer) error {
	evaluator := Evaluator{compiled: map[string]cel.CompilationResult{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var question Question
		if err := json.Unmarshal(lines.Bytes(), &question); err != nil {
			return fmt.Errorf("found %.200q, expected a question: %w", lines.Text(), err)
		}
		if err := answers.Encode(evaluator.answer(question)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (e Evaluator) answer(question Question) Answer {
	answer := Answer{Matches: true, Refused: []string{}, Cost: []uint64{}}
	device := cel.Device{
		Driver:                   question.Driver,
		AllowMultipleAllocations: question.Device.AllowMultipleAllocations,
		Attributes:               question.Device.Attributes,
		Capacity:                 question.Device.Capacity,
	}
	for _, expression := range question.Selectors {
		program := e.compile(expression)
		answer.Cost = append(answer.Cost, program.MaxCost)
		if reason := refusal(expression, program); reason != "" {
			answer.Refused = append(answer.Refused, reason)
			answer.Matches = false
			continue
		}
		matches, _, err := program.DeviceMatches(context.Background(), device)
		if err != nil {
			answer.Failed = err.Error()
		}
		answer.Matches = answer.Matches && err == nil && matches
	}
	return answer
}

// compile does what the API server does with a new expression.
func (e Evaluator) compile(expression string) cel.CompilationResult {
	if known, ok := e.compiled[expression]; ok {
		return known
	}
	fresh := environment.NewExpressions
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	result := compiler.CompileCELExpression(expression, cel.Options{EnvType: &fresh})
	e.compiled[expression] = result
	return result
}

// refusal says why the API server would refuse a selector, or nothing.
func refusal(expression string, program cel.CompilationResult) string {
	switch {
	case len(expression) > resourceapi.CELSelectorExpressionMaxLength:
		return fmt.Sprintf("too long: %d bytes", len(expression))
	case program.Error != nil:
		return program.Error.Error()
	case program.MaxCost > resourceapi.CELSelectorExpressionMaxCost:
		return fmt.Sprintf("too complex: cost %d", program.MaxCost)
	}
	return ""
}
